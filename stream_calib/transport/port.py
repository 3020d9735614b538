"""The port to a partitioned, ordered log with atomic consume-transform-produce.

Every transport (embedded, Kafka, ...) implements these classes and runs tests/contract/test_transport_contract.py.

Order: records of one partition are seen in order of their offsets, without holes that a reader has to know of (offsets
may skip where a transaction marker or an aborted record lies, so ranges are half-open offset ranges, never counts).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

C = TypeVar("C", bound="Consumer")
L = TypeVar("L", bound="Log")


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Record(NamedTuple):
    """One record as read. Bytes are as produced; nothing is decoded here."""

    source: TopicPartition
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    append_time_ms: int
    """Wall time at which the log took the record (broker timestamp), epoch milliseconds."""


class Outgoing(NamedTuple):
    """One record to be produced."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None
    """None: chosen by the log from the key (stable hash), or round robin without a key."""


class OffsetRange(NamedTuple):
    """Half-open: what was read is start <= offset < end; `end` is the next position."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PolledBatch:
    """What one poll gave. Records are grouped by partition, each group in offset order."""

    records: list[Record] = field(default_factory=list)
    ranges: dict[TopicPartition, OffsetRange] = field(default_factory=dict)
    """From the position before the poll to the one after it, for each partition whose position it moved. It spans the
    partition's records of this poll, and offsets that hold none: the ends of transactions, what was aborted."""
    at_end: frozenset[TopicPartition] = frozenset()
    """Assigned partitions whose position after this poll had reached the end of the log."""


class StartAt(NamedTuple):
    """Where a partition without a committed position begins."""

    earliest: bool = True


class Consumer(ABC):
    """One member of a group over some topics. Not thread-safe. Use as a context manager.

    The group shares partitions over its live members; one that dies loses its partitions after the session timeout.
    """

    @abstractmethod
    def poll(self, max_records: int, timeout_ms: int) -> PolledBatch:
        """Up to `max_records` records from the assigned partitions, fairly; waits up to `timeout_ms` for the first.

        Fewer where they are large: a poll takes some tens of megabytes. Also keeps the membership alive and takes up
        new assignments. Raises PositionLostError when a position lies before the start of the log, TopicRecreatedError
        when a topic was replaced, TransportError when the log is away.
        """

    @abstractmethod
    def assignment(self) -> frozenset[TopicPartition]:
        """Partitions that this member owns now. A change is seen only across a `poll`."""

    @abstractmethod
    def position(self, partition: TopicPartition) -> int:
        """Offset of the next record that a poll would give."""

    @abstractmethod
    def seek(self, partition: TopicPartition, offset: int) -> None:
        """The next poll of the partition begins at `offset`; what was fetched before is discarded."""

    @abstractmethod
    def commit(self, outputs: Sequence[Outgoing], positions: Mapping[TopicPartition, int]) -> None:
        """Writes all outputs and moves the group's committed positions as one, or does nothing of it.

        Raises FencedError when a partition of `positions` is no longer this member's (nothing was written; the member
        must drop the batch and poll again), TransportError when it is not known to have happened: the caller works
        again from the committed positions, which the log answers as the truth. After either, the partitions of
        `positions` that are still this member's begin again there, unless the caller seeks elsewhere.
        """

    @abstractmethod
    def committed(self, partition: TopicPartition) -> int | None:
        """The group's committed position, None where there is none."""

    @abstractmethod
    def pause(self, partitions: frozenset[TopicPartition]) -> None:
        """Exactly these assigned partitions give no records in later polls, until the next call."""

    @abstractmethod
    def close(self) -> None:
        """Leaves the group. Uncommitted work is dropped."""

    def __enter__(self: C) -> C:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Log(ABC):
    """A process's connection to the log. Use as a context manager."""

    @abstractmethod
    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        """Creates the topic. Does nothing when it exists with as many partitions, else raises TransportError.

        `settings`: topic settings of Kafka, as `retention.ms`; used at creation, by logs that have such.
        """

    @abstractmethod
    def partitions(self, topic: str) -> int:
        """Number of partitions. Raises UnknownTopicError where there is no such topic."""

    @abstractmethod
    def topic_id(self, topic: str) -> str:
        """Identity minted when the topic was created: a recreated topic of the same name has another one."""

    @abstractmethod
    def end_offset(self, partition: TopicPartition) -> int:
        """Offset that the next record will get."""

    @abstractmethod
    def offset_at(self, partition: TopicPartition, time_ms: int) -> int:
        """The least offset whose record the log took at `time_ms` (epoch milliseconds) or later; the end where there is
        none. Records of one partition may be out of order by their producers' clocks, so later ones may be older."""

    @abstractmethod
    def produce(self, outputs: Sequence[Outgoing]) -> None:
        """Writes the records without a transaction, in order per partition, and returns when the log has them."""

    @abstractmethod
    def consumer(self, group: str, topics: Sequence[str], *, member: str, start: StartAt = StartAt()) -> Consumer:  # noqa: B008 - StartAt is an immutable tuple
        """A new member of the group. `member` names the process in logs and status; it must be unique in the group."""

    @abstractmethod
    def read(self, partition: TopicPartition, start: int, max_records: int) -> list[Record]:
        """Records from `start` on, outside any group; [] at the end. For reports and tools."""

    def topic_settings(self, topic: str) -> Mapping[str, str] | None:
        """The topic's settings in force, by Kafka's names, as `retention.ms`; None where the log has no such settings.

        Raises UnknownTopicError where there is no such topic.
        """
        self.partitions(topic)
        return None

    def group_positions(self, group: str, topic: str) -> Mapping[int, int] | None:
        """The group's committed positions on the topic by partition, without joining it; None: the log cannot tell.

        Partitions without one are left out. Raises UnknownTopicError where there is no such topic.
        """
        self.partitions(topic)
        return None

    def try_transaction(self) -> None:
        """Opens a transaction and aborts it, writing to no topic: a check of rights and settings. Nothing to try where
        commits need no transaction. Raises TransportError that says what stands in the way."""
        return

    def opener(self) -> Callable[[], Log] | None:
        """What opens another connection to the same log, in another process too (it can be pickled). None: only this
        one can be had, or others would gain nothing."""
        return None

    def server_version(self) -> str | None:
        """Version of the log's servers, None where it is not known."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Ends the connection."""

    def __enter__(self: L) -> L:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
