"""Where a model key that is new to a running deployment starts to read: where those that are there already stand."""

from __future__ import annotations

from collections.abc import Iterable

from stream_calib.windows.pane_record import PaneNames, decode_record
from stream_calib.windows.registration import INPUTS, recorded_inputs
from stream_calib.windows.shard_store import Mark, ShardStore
from stream_calib.windows.state_store import StateStore


def starts_beside(others: Iterable[tuple[ShardStore, StateStore]]) -> dict[str, Mark]:
    """Input key -> first mark of a new model key, from the shards and states of those that run; {} beside none.

    Scores: the least position over them; nobody has passed a row of the new key before its inputs are on record.
    Labels: where the oldest pane began that they still keep. The clock is the partition's own at that position.
    """
    starts: dict[str, Mark] = {}
    for shards, state in others:
        for input_key, mark in _starts_beside_one(shards, state).items():
            known = starts.get(input_key)
            starts[input_key] = mark if known is None or mark.next < known.next else known
    return starts


def _starts_beside_one(shards: ShardStore, state: StateStore) -> dict[str, Mark]:
    fields = state.read((INPUTS, "first_pane", "matured"))
    recorded = recorded_inputs(state, int(fields[INPUTS] or 0))
    progress = shards.progress()
    marks = {
        i: min([p.marks[i] for p in progress if i in p.marks] or [mark], key=lambda m: m.next)
        for i, mark in recorded.items()
        if i.startswith("s:")
    }
    marks |= {i: mark for i, mark in recorded.items() if i.startswith("l:")}
    if fields["first_pane"] is not None:
        oldest = int(fields["matured"] or 0) - shards.settings.keep_panes + 1
        (blob,) = state.blobs([PaneNames.of(oldest).record])
        if blob is not None:  # else nothing has matured that was not kept
            entries = decode_record(blob).entries
            marks |= {i: Mark(e.position, e.clock_ms) for i, e in entries.items() if i in marks and i.startswith("l:")}
    return {i: Mark(mark.next, mark.clock_ms, mark.clock_ms) for i, mark in marks.items()}
