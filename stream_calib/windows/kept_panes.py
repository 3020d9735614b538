"""Which panes' blobs are kept, and what the records of those before them summed to: the field `kept`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stream_calib.errors import StateError

FIELD = "kept"


class KeptPanes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """JSON of the field; keys in this order, so equal ones are equal bytes."""

    first_pane: int
    """The oldest pane that has blobs."""
    chain: str = ""
    """Hash chain of the matured cells before it, see pane_record.chained."""
    counts: dict[str, int] = {}
    """Outcome classes summed over the records before it, with `labelled` and `unlabelled`."""

    def encode(self) -> str:
        return msgspec.json.encode(self, order="deterministic").decode()


def kept_of(fields: Mapping[str, str | None]) -> KeptPanes | None:
    """Of the fields `kept` and `first_pane`; None before the generation's first pane is known.

    Raises StateError where the field cannot be read.
    """
    kept, first_pane = fields[FIELD], fields["first_pane"]
    if kept is None:
        return None if first_pane is None else KeptPanes(int(first_pane))
    try:
        return msgspec.json.decode(kept, type=KeptPanes)
    except msgspec.MsgspecError as error:
        raise StateError(
            f"the field {FIELD} cannot be read ({error}): the model key's state is damaged; restore it from a backup"
        ) from error
