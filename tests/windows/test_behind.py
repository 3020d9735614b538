"""A shard that lost writes is found without traffic."""

from __future__ import annotations

from stream_calib.windows.input_batch import EMPTY_LABELS
from stream_calib.windows.memory_shards import MemoryShards
from stream_calib.windows.row_codec import EMPTY_ROWS
from stream_calib.windows.shard_store import Advance, Mark, ShardCall
from tests.windows.join import SETTINGS, Join, L, S, at


def test_only_the_inputs_that_a_shard_still_needs_are_named() -> None:
    join = Join(MemoryShards(2, SETTINGS))
    join.move_clocks(5)
    assert join.intake.behind({S: 1, L: 1}) == {}
    # Shard 0 alone goes on, as if shard 1 had been rolled back to where both were.
    advance = {S: Advance(1, 4, at(9))}
    assert join.store.apply([ShardCall(0, advance, EMPTY_ROWS, EMPTY_LABELS)], join.inputs) == [None]
    assert join.intake.behind({S: 4, L: 1}) == {S: Mark(1, at(5), at(5))}


def test_a_shard_without_anything_needs_all() -> None:
    join = Join(MemoryShards(1, SETTINGS))
    assert join.intake.behind({S: 1, L: 1}) == {S: Mark(0, None), L: Mark(0, None)}
