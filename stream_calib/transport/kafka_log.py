"""What both logs on Apache Kafka share, whatever the client: topics, offsets, names of groups and transactions."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from stream_calib.config_connections import LogSection
from stream_calib.errors import TransportError, UnknownTopicError
from stream_calib.transport.port import Log, Outgoing, TopicPartition

WRITE_WITHIN_MS = 30_000

_BROKERS_DEFAULT = -1
_SETTLED_AFTER_MS = 2_000
"""A transaction that the brokers abort for its age is answered this much later."""
_KNOWN_WITHIN_S = 10.0
_LOOK_AGAIN_S = 0.02


class TopicIdentity(NamedTuple):
    """A topic as it is now. `id`: minted by the brokers at creation."""

    id: str
    partitions: int


class Catalogue(Protocol):
    """What the brokers say of topics. Raises TransportError where none answers."""

    def create(self, topic: str, partitions: int, replication_factor: int, settings: Mapping[str, str]) -> None:
        """Does nothing where it exists. `replication_factor`: -1 for the brokers' default."""

    def identity(self, topic: str) -> TopicIdentity:
        """Raises UnknownTopicError where there is no such topic."""

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Of the first records of those broker times (epoch milliseconds) or later; -1 where there is none."""

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """As readers of committed records see them: before the first transaction that is still open."""


class Writes(Protocol):
    """Writes records without a transaction."""

    def write(self, outputs: Sequence[Outgoing]) -> None:
        """Returns when the brokers have them all. Raises TransportError when some may not have been written."""


class Transactions(Protocol):
    """Writes in transactions."""

    def try_one(self) -> None:
        """Opens a transaction and aborts it, writing nothing."""

    def close(self) -> None:
        """Drops what is not written."""


class LogOnKafka(Log):
    """See `Log`."""

    def __init__(self, section: LogSection, topics: Catalogue, writer: Writes) -> None:
        self._section = section
        self._catalogue, self._plain_writer = topics, writer

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        if partitions < 1:
            raise TransportError(f"topic {topic} with {partitions} partitions: at least 1 is needed")
        replicas = self._section.replication_factor or _BROKERS_DEFAULT
        self._catalogue.create(topic, partitions, replicas, settings or {})
        found = self._partitions_once_known(topic)
        if found != partitions:
            raise TransportError(f"topic {topic} exists with {found} partitions, not {partitions}")

    def partitions(self, topic: str) -> int:
        return self._catalogue.identity(topic).partitions

    def topic_id(self, topic: str) -> str:
        return self._catalogue.identity(topic).id

    def end_offset(self, partition: TopicPartition) -> int:
        return self._catalogue.end_offsets([partition])[partition]

    def offset_at(self, partition: TopicPartition, time_ms: int) -> int:
        found = self._catalogue.offsets_at({partition: max(0, time_ms)})[partition]
        return found if found >= 0 else self.end_offset(partition)

    def produce(self, outputs: Sequence[Outgoing]) -> None:
        self._plain_writer.write(outputs)

    def try_transaction(self) -> None:
        if not self._has_transactions:
            return
        writer = self._transactions(f"{self._section.group_prefix}.trial")
        try:
            writer.try_one()
        finally:
            writer.close()

    @abstractmethod
    def _transactions(self, transactional_id: str) -> Transactions: ...

    @property
    def _has_transactions(self) -> bool:
        return self._section.delivery == "exactly_once"

    @property
    def _transaction_within_ms(self) -> int:
        return self._section.transaction_timeout_ms + _SETTLED_AFTER_MS

    def _group_name(self, group: str) -> str:
        return f"{self._section.group_prefix}.{group}"

    def _transactional_id(self, group_name: str, member: str) -> str:
        """A process that comes back under its static identity ends what its former self left open."""
        return f"{group_name}.{self._section.instance_id or member}"

    def _partitions_once_known(self, topic: str) -> int:
        """A created topic takes a moment until every broker knows it."""
        deadline = time.monotonic() + _KNOWN_WITHIN_S
        while True:
            try:
                return self.partitions(topic)
            except UnknownTopicError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK_AGAIN_S)
