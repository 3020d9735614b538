"""The transports that the contract suite runs over, with what only a broker's operator could do to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import pytest

from stream_calib.redis_connection import connect
from stream_calib.transport.embedded import EmbeddedLog
from stream_calib.transport.embedded_layout import entry_id, members_key, stream_key
from stream_calib.transport.memory import MemoryLog
from stream_calib.transport.port import Consumer, Log, PolledBatch, Record, TopicPartition


class Transport(ABC):
    """One empty log."""

    @abstractmethod
    def connect(self) -> Log:
        """Another process's connection."""

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


def drain(consumer: Consumer, max_records: int = 1_000) -> list[Record]:
    """Everything up to the end of the assigned partitions; each batch is checked to be well formed."""
    records: list[Record] = []
    while True:
        batch = consumer.poll(max_records, timeout_ms=0)
        check_batch(consumer, batch, max_records)
        records += batch.records
        if not batch.records:
            assert batch.at_end == consumer.assignment()
            return records


def check_batch(consumer: Consumer, batch: PolledBatch, max_records: int) -> None:
    """Grouped by partition, in order of offsets, spanned by the ranges."""
    assert len(batch.records) <= max_records
    in_order = [record.source for record in batch.records]
    groups = [p for i, p in enumerate(in_order) if i == 0 or in_order[i - 1] != p]
    assert len(groups) == len(set(groups)) == len(batch.ranges)
    for partition, span in batch.ranges.items():
        offsets = [r.offset for r in batch.records if r.source == partition]
        assert offsets == sorted(set(offsets))
        assert span.start <= offsets[0]
        assert span.end == offsets[-1] + 1 == consumer.position(partition)
    assert batch.at_end <= consumer.assignment()


def read_all(log: Log, topic: str) -> list[Record]:
    """All records of a topic, outside any group."""
    found = []
    for p in range(log.partitions(topic)):
        partition = TopicPartition(topic, p)
        found += log.read(partition, 0, max(1, log.end_offset(partition)))
    return found
