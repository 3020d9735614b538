"""Records that a Kafka client has handed over and no poll has given yet, by partition.

Clients hand records over in the order of their fetches. To be fair a poll takes more of them than it gives, and what is
left over waits here, at most about as much as one poll more.
"""

from __future__ import annotations

from collections.abc import Mapping

from stream_calib.transport.partitioning import fair_cut
from stream_calib.transport.port import OffsetRange, Record, TopicPartition


class Buffer:
    """One assigned partition: its position, what is buffered after it, and where its end was last."""

    __slots__ = ("begun", "end_seen", "fetched", "position", "records", "taken")

    def __init__(self, position: int) -> None:
        self.begin(position)

    def begin(self, position: int) -> None:
        """Everything that was fetched is dropped; the next record is the one at `position`."""
        self.begun = position
        """Where reading began since the partition was assigned, or since the last seek."""
        self.position = position
        """Offset of the next record that a poll would give."""
        self.fetched = position
        """Offset after the last record that was handed over: the client's own position."""
        self.records: list[Record] = []
        self.taken = 0
        """How many of `records` polls have given."""
        self.end_seen = -1
        """The partition's end when it was last asked for."""

    def __len__(self) -> int:
        return len(self.records) - self.taken

    def add(self, records: list[Record]) -> None:
        """Records before `fetched` are repeats, from before a seek or a pause, and are dropped."""
        if records[0].offset < self.fetched:
            records = [record for record in records if record.offset >= self.fetched]
            if not records:
                return
        if len(self):
            self.records = self.records[self.taken :] + records
        else:
            self.records = records
        self.taken = 0
        self.fetched = records[-1].offset + 1

    def pass_to(self, offset: int) -> None:
        """The client has passed everything before `offset`, also what holds no record."""
        self.fetched = max(self.fetched, offset)

    def take(self, count: int) -> list[Record]:
        """The next records; the position moves behind them, and with the last one to where the client is."""
        given = self.records[self.taken : self.taken + count] if count < len(self.records) else self.records
        self.taken += len(given)
        if self.taken >= len(self.records):
            self.records, self.taken = [], 0
            self.position = self.fetched
        elif given:
            self.position = given[-1].offset + 1
        return given


def take_fairly(
    buffers: Mapping[TopicPartition, Buffer], paused: frozenset[TopicPartition], max_records: int, turn: int
) -> tuple[list[Record], dict[TopicPartition, OffsetRange]]:
    """At most `max_records` records of the partitions that are not paused, and the ranges that they span.

    Positions also pass what holds no record. `turn` moves who is first where not all can be served.
    """
    ready = [p for p, buffer in buffers.items() if p not in paused and buffer.position < buffer.fetched]
    if ready:
        first = turn % len(ready)
        ready = ready[first:] + ready[:first]
    records: list[Record] = []
    ranges = {}
    for partition, count in fair_cut({p: len(buffers[p]) for p in ready}, max_records).items():
        buffer = buffers[partition]
        if not count and len(buffer):
            continue
        start = buffer.position
        given = buffer.take(count)
        records = records + given if records else given
        ranges[partition] = OffsetRange(start, buffer.position)
    return records, ranges
