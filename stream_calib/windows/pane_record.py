"""The record that is committed with a matured pane: its counters, cut, places to start again from, and the hash
chain."""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

import msgspec

from stream_calib.errors import StateError
from stream_calib.windows.served_sums import Served
from stream_calib.windows.shard_store import Entry


class PaneRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """JSON of the blob `pane:<pane>`; keys in this order, so equal records are equal bytes."""

    pane: int
    counts: dict[str, int]
    served: dict[str, Served]
    cut: dict[str, dict[str, int]]
    entries: dict[str, Entry]
    labelled: int
    positives: int
    unlabelled: int
    chain: str
    """Hash over the packed matured cells of all panes up to this one, see `chained`."""
    labels_at_cut: dict[str, dict[str, int]] = {}
    """As in MaturedPane; only where there is a cut."""

    def encode(self) -> bytes:
        return msgspec.json.encode(self, order="deterministic")


def decode_record(blob: bytes) -> PaneRecord:
    """Raises StateError where the bytes are not a pane record."""
    try:
        return msgspec.json.decode(blob, type=PaneRecord)
    except msgspec.MsgspecError as error:
        raise StateError(f"a pane record of {len(blob)} bytes cannot be read: {error}") from error


def chained(previous: str, blob: bytes) -> str:
    """chain' = sha256(chain bytes + sha256(blob)) in hex; the chain before the first pane is ""."""
    return sha256(bytes.fromhex(previous) + sha256(blob).digest()).hexdigest()


class PaneNames(NamedTuple):
    """Names of the blobs of a pane."""

    scored: str
    matured: str
    record: str

    @classmethod
    def of(cls, pane: int) -> PaneNames:
        return cls(f"scored:{pane}", f"matured:{pane}", f"pane:{pane}")
