"""What is kept of decisions whose entries were dropped, and the candidates that are held."""

from __future__ import annotations

from pydantic import ValidationError

from stream_calib.drift.policy import Kind
from stream_calib.errors import StateError
from stream_calib.snapshot.document import Document, ExtendedDocument
from stream_calib.snapshot.operator_entries import Pin, Shadow


class Held(Document):
    """A candidate that passed its gate and waits for somebody to approve it."""

    version: str
    kind: Kind
    parent: str | None
    """The version that it was compared with."""
    request_id: str
    asked_pane: int
    """Pane of its request."""
    pane: int
    """At which it was held."""


class FoldedLog(ExtendedDocument):
    """What entries came to that were dropped, none of them an open request: the blob `folded:decisions`."""

    later = frozenset({"held", "held_since", "shadow"})

    length: int
    tip: str | None
    moved_pane: int | None
    """Pane of the last move of the pointer, and the version that it is at since."""
    current: str | None
    open_failures: dict[str, int]
    pin: Pin | None
    held: tuple[Held, ...] = ()
    """Oldest first."""
    held_since: int | None = None
    shadow: Shadow | None = None

    @classmethod
    def decode(cls, raw: bytes) -> FoldedLog:
        """Raises StateError where the bytes are none."""
        try:
            return cls.model_validate_json(raw)
        except ValidationError as error:
            raise StateError(f"the folded decision log cannot be read ({error}): {raw[:200]!r}") from error
