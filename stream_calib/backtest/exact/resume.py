"""Where a replay can begin when the log does not hold a model key's first records any more: at a pane record of the
live state, as a shard that was wiped is rebuilt.

From there on the cells are those of the live run. What was decided before is not in them, so such a history is cold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from stream_calib.errors import HistoryGapError
from stream_calib.windows.kept_panes import FIELD as KEPT
from stream_calib.windows.kept_panes import KeptPanes, kept_of
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.pane_record import PaneNames, PaneRecord, decode_record
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.registration import INPUTS, recorded_inputs
from stream_calib.windows.shard_store import Mark
from stream_calib.windows.state_store import Commit, StateStore


class Resumed(NamedTuple):
    """What a replay goes on from."""

    state: MemoryState
    """As if the panes up to `last_pane` had matured in it."""
    begin: dict[str, Mark]
    """Input key -> where it is read from."""
    last_pane: int


def resume(live: StateStore, first_offsets: Mapping[str, int], settings: PaneSettings) -> Resumed:
    """The earliest place that the log (input key -> its first offset) and the records that are kept allow.

    Raises HistoryGapError where there is none, StateError where a record is damaged.
    """
    fields = live.read(("first_pane", "matured", INPUTS, KEPT))
    kept, matured = kept_of(fields), int(fields["matured"] or -1)
    recorded = recorded_inputs(live, int(fields[INPUTS] or 0))
    first = -1 if kept is None else kept.first_pane
    low, high = first, matured - settings.rebuilt_panes + 1
    found: dict[str, Mark] = {}
    while low <= high:
        middle = (low + high) // 2
        begin = _begin(live, middle, recorded)
        if begin is not None and all(first_offsets.get(i, mark.next + 1) <= mark.next for i, mark in begin.items()):
            found, high, first = begin, middle - 1, middle
        else:
            low = middle + 1
    if not found:
        raise HistoryGapError(
            "the log begins behind all panes that have matured, so there is none that could be counted again"
        )
    return Resumed(_state(live, first, settings), found, first + settings.rebuilt_panes - 1)


def _begin(live: StateStore, pane: int, recorded: Mapping[str, Mark]) -> dict[str, Mark] | None:
    """Where each input's clock first reached the pane; None where the record was dropped meanwhile."""
    (blob,) = live.blobs([PaneNames.of(pane).record])
    if blob is None:
        return None
    entries = decode_record(blob).entries
    return {i: Mark(entries[i].position, entries[i].clock_ms) if i in entries else m for i, m in recorded.items()}


def _state(live: StateStore, first: int, settings: PaneSettings) -> MemoryState:
    """With the records from pane `first` on that a wiped shard is rebuilt by."""
    last = first + settings.rebuilt_panes - 1
    names = [PaneNames.of(pane).record for pane in range(first, last + 1)]
    blobs = {name: blob for name, blob in zip(names, live.blobs(names), strict=True) if blob is not None}
    record: PaneRecord = decode_record(blobs[names[-1]])
    fields = live.read(("first_pane", INPUTS))
    inputs = live.entries(INPUTS, 0, int(fields[INPUTS] or 0))
    made = MemoryState()
    made.commit(
        Commit(
            fields={
                **{name: value for name, value in fields.items() if value is not None},
                **dict.fromkeys(("closed", "matured", "decided"), str(last)),
                "matured_chain": record.chain,
                KEPT: KeptPanes(last + 1, record.chain).encode(),
            },
            appends={INPUTS: inputs},
            blobs=blobs,
        )
    )
    return made
