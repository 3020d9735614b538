"""A group member that reads the log in memory."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from stream_calib.errors import FencedError, PositionLostError, TopicRecreatedError, TransportError
from stream_calib.transport.memory_store import MemoryStore, Session, StoredGroup
from stream_calib.transport.partitioning import fair_counts
from stream_calib.transport.port import (
    Consumer,
    OffsetRange,
    Outgoing,
    PolledBatch,
    Record,
    StartAt,
    TopicPartition,
)


class MemoryConsumer(Consumer):
    """See `Consumer`; behaves as the embedded log's member does."""

    def __init__(self, store: MemoryStore, group: str, topics: Sequence[str], member: str, start: StartAt) -> None:
        self._store = store
        self._group = group
        self._topics = tuple(topics)
        self._member = member
        self._start = start
        self._sessions: dict[str, Session] = {}
        self._joined = False
        self._ids: dict[str, str] = {}
        self._assigned: list[TopicPartition] = []
        self._positions: dict[TopicPartition, int] = {}
        self._paused: frozenset[TopicPartition] = frozenset()
        self._turn = 0

    def poll(self, max_records: int, timeout_ms: int) -> PolledBatch:
        deadline = time.monotonic() + timeout_ms / 1000
        with self._store.changed:
            while True:
                self._heartbeat()
                batch = self._read(max_records)
                left_s = deadline - time.monotonic()
                if batch.ranges or left_s <= 0:
                    return batch
                self._store.changed.wait(min(left_s, self._store.session_timeout_ms / 3_000))

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._assigned)

    def position(self, partition: TopicPartition) -> int:
        self._must_own(partition)
        with self._store.changed:
            return self._position(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._must_own(partition)
        if offset < 0:
            raise TransportError(f"{partition}: cannot seek to {offset}; offsets begin at 0")
        self._positions[partition] = offset

    def commit(self, outputs: Sequence[Outgoing], positions: Mapping[TopicPartition, int]) -> None:
        with self._store.changed:
            try:
                for partition in positions:
                    self._refuse_when_fenced(partition)
                self._store.append(outputs)
            except TransportError:
                for partition in positions:
                    self._positions.pop(partition, None)
                raise
            for partition, new in positions.items():
                self._stored_group(partition.topic).committed[partition.partition] = new

    def committed(self, partition: TopicPartition) -> int | None:
        with self._store.changed:
            group = self._store.groups.get((self._group, partition.topic))
            return None if group is None else group.committed.get(partition.partition)

    def pause(self, partitions: frozenset[TopicPartition]) -> None:
        self._paused = partitions

    def close(self) -> None:
        with self._store.changed:
            for topic, session in self._sessions.items():
                group = self._stored_group(topic)
                if group.sessions.get(self._member) is session:
                    del group.sessions[self._member]
                group.owners = {p: owner for p, owner in group.owners.items() if owner is not session}

    def _stored_group(self, topic: str) -> StoredGroup:
        return self._store.groups[self._group, topic]

    def _heartbeat(self) -> None:
        assigned: list[TopicPartition] = []
        for topic in self._topics:
            assigned += [TopicPartition(topic, p) for p in self._share(topic)]
        self._joined = True
        self._assigned = assigned
        self._positions = {p: offset for p, offset in self._positions.items() if p in assigned}

    def _share(self, topic: str) -> list[int]:
        """Keeps the session on one topic, gives up what is too much, takes what is free: see embedded_lease.lua."""
        stored = self._store.topic(topic)
        count = len(stored.partitions)
        group = self._store.groups.setdefault((self._group, topic), StoredGroup(stored.id, count))
        if self._ids.setdefault(topic, stored.id) != stored.id or group.topic_id != stored.id:
            raise TopicRecreatedError(
                f"topic {topic} was deleted and created again: the positions of group {self._group} are of the old one"
            )
        now_ms = self._store.now_ms()
        session = self._sessions.get(topic)
        current = group.sessions.get(self._member)
        if self._joined and current is not None and current is not session:
            raise TransportError(f"another process has joined group {self._group} as member {self._member}")
        if session is None or current is None:
            session = self._sessions[topic] = Session(self._member)
            self._positions = {p: offset for p, offset in self._positions.items() if p.topic != topic}
            # A process that was started again under its name goes on at once, as the one that it replaces.
            group.owners = {p: session if owner is current else owner for p, owner in group.owners.items()}
        session.ends_ms = now_ms + self._store.session_timeout_ms
        group.sessions[self._member] = session
        group.sessions = {name: s for name, s in group.sessions.items() if s.ends_ms >= now_ms}
        names = sorted(group.sessions)
        quota = count // len(names) + (1 if names.index(self._member) < count % len(names) else 0)
        mine = [p for p in range(count) if group.owners.get(p) is session]
        for surplus in mine[quota:]:
            del group.owners[surplus]
        live = set(group.sessions.values())
        free = [p for p in range(count) if group.owners.get(p) not in live and p not in mine[quota:]]
        taken = free[: max(0, quota - len(mine))]
        group.owners.update(dict.fromkeys(taken, session))
        return sorted(mine[:quota] + taken)

    def _read(self, max_records: int) -> PolledBatch:
        readable = [p for p in self._assigned if p not in self._paused]
        backlog = {}
        for partition in readable:
            self._refuse_a_gap(partition)
            backlog[partition] = self._store.partition(partition).end - self._position(partition)
        records: list[Record] = []
        ranges: dict[TopicPartition, OffsetRange] = {}
        for partition, count in fair_counts(readable, backlog, max_records, self._turn).items():
            start = self._position(partition)
            end = start + min(count, backlog[partition])
            if end > start:
                records += self._store.partition(partition).between(start, end)
                ranges[partition] = OffsetRange(start, end)
                self._positions[partition] = end
        self._turn += 1
        at_end = frozenset(p for p in self._assigned if self._position(p) == self._store.partition(p).end)
        return PolledBatch(records, ranges, at_end)

    def _refuse_a_gap(self, partition: TopicPartition) -> None:
        stored, position = self._store.partition(partition), self._position(partition)
        if position < stored.first:
            raise PositionLostError(
                f"{partition}: the records {position} to {stored.first - 1} are gone; seek to {stored.first} to go on",
                {partition: (position, stored.first)},
            )
        if position > stored.end:
            raise PositionLostError(
                f"{partition}: the log ends at {stored.end}, before the position {position}",
                {partition: (position, position)},
            )

    def _refuse_when_fenced(self, partition: TopicPartition) -> None:
        session = self._sessions.get(partition.topic)
        if (
            session is None
            or partition not in self._assigned
            or self._stored_group(partition.topic).owners.get(partition.partition) is not session
        ):
            raise FencedError(
                f"{partition} is not assigned to member {self._member} of group {self._group};"
                " drop the batch and poll again"
            )

    def _position(self, partition: TopicPartition) -> int:
        if (position := self._positions.get(partition)) is None:
            group, stored = self._stored_group(partition.topic), self._store.partition(partition)
            position = group.committed.get(partition.partition)
            if position is None:
                from_the_end = not self._start.earliest and partition.partition < group.first_partitions
                position = stored.end if from_the_end else stored.first
            self._positions[partition] = position
        return position

    def _must_own(self, partition: TopicPartition) -> None:
        if partition not in self._assigned:
            raise TransportError(f"{partition} is not assigned to member {self._member}; poll first")
