"""Shards in memory for replays: those of memory_shards.py with a join in columns, for a few hundred thousand events a
second on one core."""

from __future__ import annotations

from stream_calib.windows.column_join import ColumnJoin
from stream_calib.windows.memory_shards import MemoryShards
from stream_calib.windows.shard_join import ShardJoin


class ColumnShards(MemoryShards):
    """See ShardStore. Memory holds the rows of panes that have not been removed, 55 bytes each, and their labels."""

    operations_a_call = 1 << 20

    def _join(self) -> ShardJoin:
        return ColumnJoin(self.settings)
