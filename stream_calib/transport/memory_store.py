"""What the log in memory holds, behind one lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from threading import Condition
from uuid import uuid4

from stream_calib.errors import TransportError, UnknownTopicError
from stream_calib.transport.partitioning import Partitioner
from stream_calib.transport.port import Outgoing, Record, TopicPartition


@dataclass(slots=True)
class StoredPartition:
    """What one partition holds: `records[i]` has offset `first + i`; None where the offset holds no record."""

    first: int = 0
    records: list[Record | None] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.first + len(self.records)

    def read(self, start: int, max_records: int) -> list[Record]:
        skip = max(0, start - self.first)
        return list(islice((record for record in self.records[skip:] if record), max_records))

    def between(self, start: int, end: int) -> list[Record]:
        """Records with start <= offset < end."""
        return [record for record in self.records[max(0, start - self.first) : end - self.first] if record]


@dataclass(slots=True)
class StoredTopic:
    partitions: list[StoredPartition]
    id: str = field(default_factory=lambda: str(uuid4()))


@dataclass(slots=True, eq=False)
class Session:
    """One life of a member. Partitions belong to a session, so a member that joins again owns none of its old ones."""

    member: str
    ends_ms: int = 0


@dataclass(slots=True)
class StoredGroup:
    """A group on one topic."""

    topic_id: str
    first_partitions: int
    sessions: dict[str, Session] = field(default_factory=dict)
    owners: dict[int, Session] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)


class MemoryStore:
    """All topics and groups. Every method and attribute is used with `changed` held."""

    def __init__(self, session_timeout_ms: int, now_ms: Callable[[], int]) -> None:
        self.session_timeout_ms = session_timeout_ms
        self.now_ms = now_ms
        self.changed = Condition()
        """Notified of each append."""
        self.topics: dict[str, StoredTopic] = {}
        self.groups: dict[tuple[str, str], StoredGroup] = {}
        """By group and topic."""
        self._partitioner = Partitioner()

    def topic(self, topic: str) -> StoredTopic:
        """Raises UnknownTopicError where there is no such topic."""
        if (stored := self.topics.get(topic)) is None:
            raise UnknownTopicError(f"topic {topic} does not exist: create it first")
        return stored

    def partition(self, partition: TopicPartition) -> StoredPartition:
        """Raises TransportError where there is no such partition."""
        partitions = self.topic(partition.topic).partitions
        if not 0 <= partition.partition < len(partitions):
            raise TransportError(f"{partition} does not exist: the topic has {len(partitions)} partitions")
        return partitions[partition.partition]

    def append(self, outputs: Sequence[Outgoing]) -> None:
        """All or nothing. Raises TransportError where a topic or partition does not exist."""
        now_ms = self.now_ms()
        chosen = []
        for record in outputs:
            partitions = len(self.topic(record.topic).partitions)
            chosen.append(TopicPartition(record.topic, self._partitioner.choose(record, partitions)))
        for source, record in zip(chosen, outputs, strict=True):
            stored = self.partition(source)
            headers = tuple(record.headers)
            stored.records.append(Record(source, stored.end, record.key, record.value, headers, now_ms))
        self.changed.notify_all()
