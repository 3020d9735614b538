"""The log in memory, for tests of the roles without services: one `MemoryLog` is the server and every connection."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from stream_calib.errors import TransportError
from stream_calib.transport.memory_consumer import MemoryConsumer
from stream_calib.transport.memory_store import MemoryStore, StoredPartition, StoredTopic
from stream_calib.transport.port import Log, Outgoing, Record, StartAt, TopicPartition


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class MemoryLog(Log):
    """Thread-safe; its consumers are not. `close` does nothing, so one object serves every role of a test."""

    def __init__(self, *, session_timeout_ms: int = 10_000, now_ms: Callable[[], int] = _wall_ms) -> None:
        self._store = MemoryStore(session_timeout_ms, now_ms)

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        if partitions < 1:
            raise TransportError(f"topic {topic} with {partitions} partitions: at least 1 is needed")
        with self._store.changed:
            if topic not in self._store.topics:
                self._store.topics[topic] = StoredTopic([StoredPartition() for _ in range(partitions)])
            found = len(self._store.topics[topic].partitions)
        if found != partitions:
            raise TransportError(f"topic {topic} exists with {found} partitions, not {partitions}")

    def grow_topic(self, topic: str, partitions: int) -> None:
        """Adds partitions up to this number. Raises TransportError where the topic does not exist or has more."""
        with self._store.changed:
            stored = self._store.topic(topic).partitions
            if len(stored) > partitions:
                raise TransportError(f"topic {topic} cannot grow to {partitions} partitions: it has {len(stored)}")
            stored += [StoredPartition() for _ in range(partitions - len(stored))]

    def delete_topic(self, topic: str) -> None:
        """Deletes the topic and its records, but no group's positions. Raises TransportError where there is none."""
        with self._store.changed:
            self._store.topic(topic)
            del self._store.topics[topic]

    def trim(self, partition: TopicPartition, before: int, *, past_groups: bool = False) -> int:
        """Drops records with offset < `before`; without `past_groups` none that a group has not committed.

        Returns the bound used.
        """
        with self._store.changed:
            for (_, topic), group in self._store.groups.items():
                if topic == partition.topic and not past_groups:
                    before = min(before, group.committed.get(partition.partition, 0))
            stored = self._store.partition(partition)
            cut = max(0, min(before, stored.end) - stored.first)
            del stored.records[:cut]
            stored.first += cut
        return before

    def skip(self, partition: TopicPartition, offsets: int) -> None:
        """Test hook: the next offsets hold no record, as where transactions end or were aborted."""
        with self._store.changed:
            self._store.partition(partition).records += [None] * offsets
            self._store.changed.notify_all()

    def fence(self, group: str, member: str) -> None:
        """Test hook: the member's session ends now, as if it had been silent for too long."""
        with self._store.changed:
            for (name, _), stored in self._store.groups.items():
                if name == group and (session := stored.sessions.pop(member, None)):
                    stored.owners = {p: owner for p, owner in stored.owners.items() if owner is not session}

    def partitions(self, topic: str) -> int:
        with self._store.changed:
            return len(self._store.topic(topic).partitions)

    def topic_id(self, topic: str) -> str:
        with self._store.changed:
            return self._store.topic(topic).id

    def end_offset(self, partition: TopicPartition) -> int:
        with self._store.changed:
            return self._store.partition(partition).end

    def offset_at(self, partition: TopicPartition, time_ms: int) -> int:
        with self._store.changed:
            stored = self._store.partition(partition)
            records = stored.read(stored.first, stored.end - stored.first)
        return next((r.offset for r in records if r.append_time_ms >= time_ms), stored.end)

    def group_positions(self, group: str, topic: str) -> Mapping[int, int]:
        with self._store.changed:
            self._store.topic(topic)
            stored = self._store.groups.get((group, topic))
            return {} if stored is None else dict(stored.committed)

    def produce(self, outputs: Sequence[Outgoing]) -> None:
        with self._store.changed:
            self._store.append(outputs)

    def consumer(
        self,
        group: str,
        topics: Sequence[str],
        *,
        member: str,
        start: StartAt = StartAt(),  # noqa: B008 - StartAt is an immutable tuple
    ) -> MemoryConsumer:
        return MemoryConsumer(self._store, group, topics, member, start)

    def read(self, partition: TopicPartition, start: int, max_records: int) -> list[Record]:
        with self._store.changed:
            return self._store.partition(partition).read(start, max_records)

    def close(self) -> None:
        pass
