"""The transports that the contract suite runs over, with what only a broker's operator could do to them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, runtime_checkable
from uuid import uuid4

import pytest

from stream_calib.redis_connection import connect
from stream_calib.transport.embedded import EmbeddedLog
from stream_calib.transport.embedded_consumer import EmbeddedConsumer
from stream_calib.transport.embedded_layout import entry_id, members_key, stream_key
from stream_calib.transport.memory import MemoryLog
from stream_calib.transport.memory_consumer import MemoryConsumer
from stream_calib.transport.port import Consumer, Log, OffsetRange, PolledBatch, Record, TopicPartition

RUN = uuid4().hex[:8]
"""Ends the names of this suite's topics: a server may be shared with other runs of it."""
WAIT_S = 60.0
WAITING_POLL_MS = 50


class Transport(ABC):
    """One empty log."""

    keeps_positions_of_deleted_topics = True
    """Else groups lose their positions with the topic, and begin anew on its successor."""

    @abstractmethod
    def connect(self) -> Log:
        """Another process's connection."""

    def connect_as(self, identity: str) -> Log:
        """The connection of a process with a lasting identity, under which it may be started again."""
        return self.connect()

    @abstractmethod
    def silence(self, group: str, topic: str, member: str) -> None:
        """The member's session is over, as if it had been silent for longer than the session timeout."""

    @abstractmethod
    def trim(self, partition: TopicPartition, before: int) -> None:
        """Retention takes the records with offset < `before`, whoever still needs them."""

    @abstractmethod
    def grow(self, topic: str, partitions: int) -> None: ...

    @abstractmethod
    def delete(self, topic: str) -> None: ...


class MemoryTransport(Transport):
    def __init__(self) -> None:
        self._log = MemoryLog()

    def connect(self) -> Log:
        return self._log

    def silence(self, group: str, topic: str, member: str) -> None:
        self._log.fence(group, member)

    def trim(self, partition: TopicPartition, before: int) -> None:
        self._log.trim(partition, before, past_groups=True)

    def grow(self, topic: str, partitions: int) -> None:
        self._log.grow_topic(topic, partitions)

    def delete(self, topic: str) -> None:
        self._log.delete_topic(topic)


class EmbeddedTransport(Transport):
    def __init__(self, url: str) -> None:
        self._url = url
        self._operator = EmbeddedLog(url)
        self._client = connect(url)
        self._open: list[Log] = [self._operator]

    def connect(self) -> Log:
        log = EmbeddedLog(self._url)
        self._open.append(log)
        return log

    def silence(self, group: str, topic: str, member: str) -> None:
        self._client.zadd(members_key(group, topic), {member: 0}, xx=True)

    def trim(self, partition: TopicPartition, before: int) -> None:
        self._client.xtrim(stream_key(partition), minid=entry_id(before), approximate=False)

    def grow(self, topic: str, partitions: int) -> None:
        self._operator.grow_topic(topic, partitions)

    def delete(self, topic: str) -> None:
        self._operator.delete_topic(topic)

    def close(self) -> None:
        for log in self._open:
            log.close()
        self._client.close()


@pytest.fixture
def memory_transport() -> MemoryTransport:
    return MemoryTransport()


@pytest.fixture
def embedded_transport(redis_url: str) -> Iterator[EmbeddedTransport]:
    transport = EmbeddedTransport(redis_url)
    yield transport
    transport.close()


@runtime_checkable
class WaitsForTransactions(Protocol):
    """A log whose readers see a commit only a moment after it was answered."""

    def wait_for_open_transactions(self, topic: str) -> None:
        """Returns when no transaction holds readers of the topic back."""


def is_immediate(consumer: Consumer) -> bool:
    """Whether each poll looks at the log itself: one poll shows a record, an end, a member that came or went."""
    return isinstance(consumer, (MemoryConsumer, EmbeddedConsumer))


def eventually(consumer: Consumer, met: Callable[[PolledBatch], bool], max_records: int = 1_000) -> PolledBatch:
    """Polls until it is so; what was polled on the way is in the batch. One poll must do where polls are immediate."""
    deadline = time.monotonic() + WAIT_S
    whole = consumer.poll(max_records, timeout_ms=0)
    check_batch(consumer, whole, max_records)
    while not met(whole):
        assert not is_immediate(consumer), whole
        assert time.monotonic() < deadline, whole
        more = consumer.poll(max(1, max_records - len(whole.records)), timeout_ms=WAITING_POLL_MS)
        check_batch(consumer, more, max_records)
        whole = joined(whole, more)
    return whole


def poll_records(consumer: Consumer, count: int) -> PolledBatch:
    """So many records, of one poll where polls are immediate."""
    return eventually(consumer, lambda batch: len(batch.records) >= count, count)


def joined(one: PolledBatch, other: PolledBatch) -> PolledBatch:
    """Two batches of one member, the second polled right after the first, as one."""
    ranges = dict(one.ranges)
    for partition, span in other.ranges.items():
        ranges[partition] = OffsetRange(ranges.get(partition, span).start, span.end)
    records = sorted(one.records + other.records, key=lambda record: (record.source, record.offset))
    return PolledBatch(records, ranges, other.at_end)


def drain(consumer: Consumer, max_records: int = 1_000, partitions: int = 1) -> list[Record]:
    """Everything up to the end of the assigned partitions, of which there are so many or more; each batch is checked to
    be well formed."""
    records: list[Record] = []
    deadline = time.monotonic() + WAIT_S
    while True:
        batch = consumer.poll(max_records, timeout_ms=0 if is_immediate(consumer) else WAITING_POLL_MS)
        check_batch(consumer, batch, max_records)
        records += batch.records
        if not batch.records:
            if is_immediate(consumer) or (
                batch.at_end == consumer.assignment() and len(consumer.assignment()) >= partitions
            ):
                assert batch.at_end == consumer.assignment()
                return records
            assert time.monotonic() < deadline, batch


def settle(members: Sequence[Consumer], partitions: set[TopicPartition]) -> None:
    """Returns when the members share the partitions fairly. Where polls are immediate two of each must do: one gives up
    what is too much, the next takes what is free."""
    deadline = time.monotonic() + WAIT_S
    rounds = 0
    while members and not (rounds >= 2 and _is_shared(members, partitions)):
        assert rounds < 2 or not is_immediate(members[0]), [member.assignment() for member in members]
        assert time.monotonic() < deadline, [member.assignment() for member in members]
        for member in members:
            member.poll(1, 0)
        rounds += 1


def _is_shared(members: Sequence[Consumer], partitions: set[TopicPartition]) -> bool:
    owned = Counter(p for member in members for p in member.assignment())
    sizes = [len(member.assignment()) for member in members]
    return owned == dict.fromkeys(partitions, 1) and max(sizes) - min(sizes) <= 1


def check_batch(consumer: Consumer, batch: PolledBatch, max_records: int) -> None:
    """Grouped by partition, in order of offsets, spanned by the ranges."""
    assert len(batch.records) <= max_records
    in_order = [record.source for record in batch.records]
    groups = [p for i, p in enumerate(in_order) if i == 0 or in_order[i - 1] != p]
    assert len(groups) == len(set(groups))
    assert set(groups) <= batch.ranges.keys()
    for partition, span in batch.ranges.items():
        offsets = [r.offset for r in batch.records if r.source == partition]
        assert offsets == sorted(set(offsets))
        assert span.start < span.end == consumer.position(partition)
        assert not offsets or span.start <= offsets[0] <= offsets[-1] < span.end
        if is_immediate(consumer):
            assert span == (offsets[0], offsets[-1] + 1)
    assert batch.at_end <= consumer.assignment()


def read_all(log: Log, topic: str) -> list[Record]:
    """All records of a topic, outside any group."""
    if isinstance(log, WaitsForTransactions):
        log.wait_for_open_transactions(topic)
    found = []
    for p in range(log.partitions(topic)):
        partition = TopicPartition(topic, p)
        found += log.read(partition, 0, max(1, log.end_offset(partition)))
    return found
