"""Writing through kafka-python: a batch of records with the group's positions as one transaction, or records alone."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kafka import TopicPartition as KafkaPartition
from kafka.errors import (
    FencedInstanceIdError,
    InvalidProducerEpochError,
    KafkaError,
    ProducerFencedError,
    TransactionalIdAuthorizationFailedError,
)

from stream_calib import fault_points
from stream_calib.errors import AnotherProcessError, FencedError, TransportError
from stream_calib.transport.kafka_errors import MEMBERSHIP_LOST, transport_error
from stream_calib.transport.kafka_producer import BoundedProducer, Queued
from stream_calib.transport.kafka_settings import ClientSettings
from stream_calib.transport.kafka_topics import TopicCatalogue, opened
from stream_calib.transport.partitioning import Partitioner
from stream_calib.transport.port import Outgoing

_LOG = logging.getLogger(__name__)

_ABORT_WITHIN_S = 2.0


class Writer(ABC):
    """What both ways of writing share: partitions, checks before anything is queued, a producer that is replaced."""

    def __init__(self, topics: TopicCatalogue, settings: dict[str, Any], timeout_ms: int) -> None:
        """`timeout_ms`: so long may a write take before it counts as failed."""
        self._topics = topics
        self._settings = settings
        self._timeout_s = timeout_ms / 1_000
        self._partitioner = Partitioner()
        self._partitions: dict[tuple[str, int], KafkaPartition] = {}
        self._producer: BoundedProducer | None = None

    def close(self) -> None:
        """Drops what is not written."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.abandon()

    def _check(self, outputs: Sequence[Outgoing]) -> None:
        """Raises before anything is written where a record asks for a topic or partition that is not there."""
        for topic, partition in {(output.topic, output.partition) for output in outputs}:
            if partition is None or partition < 0 or not self._topics.has(topic, partition):
                place = Outgoing(topic, None, None, (), partition)
                self._partitioner.choose(place, self._topics.partition_count(topic))

    def _placed(self, outputs: Sequence[Outgoing]) -> Iterator[Queued]:
        known, choose, count = self._partitions, self._partitioner.choose, self._topics.partition_count
        counts: dict[str, int] = {}
        for output in outputs:
            topic, partition = output.topic, output.partition
            if partition is None:
                if topic not in counts:
                    counts[topic] = count(topic)
                partition = choose(output, counts[topic])
            place = known.get((topic, partition))
            if place is None:
                place = known[topic, partition] = KafkaPartition(topic, partition)
            yield place, output

    @abstractmethod
    def _started(self) -> BoundedProducer: ...


class PlainWriter(Writer):
    """Records alone; acknowledged by all in-sync replicas, idempotent where the brokers can."""

    def __init__(self, topics: TopicCatalogue, settings: ClientSettings, timeout_ms: int) -> None:
        super().__init__(topics, settings.producer(), timeout_ms)

    def write(self, outputs: Sequence[Outgoing]) -> None:
        """Returns when the brokers have them all. Raises TransportError when some may not have been written."""
        self._check(outputs)
        if not outputs:
            return
        producer = self._started()
        doing = f"writing to {', '.join(sorted({output.topic for output in outputs}))}"
        try:
            fault_points.before("kafka.flush")
            futures = producer.queue(self._placed(outputs))
            producer.flush(self._timeout_s)
            failed = next((future.exception for future in futures if not future.succeeded()), None)
            if failed is not None:
                raise failed
            fault_points.after("kafka.flush")
        except KafkaError as error:
            self.close()
            raise transport_error(error, doing) from error

    def _started(self) -> BoundedProducer:
        if self._producer is None:
            self._producer = opened(BoundedProducer, self._settings)
        return self._producer


class TransactionalWriter(Writer):
    """Each `write` is one transaction. One transactional id for its whole life, so that a new producer ends what the
    one before it left open."""

    def __init__(
        self, topics: TopicCatalogue, settings: ClientSettings, transactional_id: str, timeout_ms: int
    ) -> None:
        super().__init__(topics, settings.transactional_producer(transactional_id), timeout_ms)
        self._id = transactional_id
        self._left_open = False

    def write(self, outputs: Sequence[Outgoing], offsets: Mapping[KafkaPartition, Any], membership: Any) -> None:
        """Outputs and offsets (kafka.structs.OffsetAndMetadata) as one.

        `membership`: the group's metadata under which the batch was read. Raises FencedError when the group has given
        its partitions to somebody else meanwhile, TransportError when it is not known to have happened.
        """
        self._check(outputs)
        producer = self._started()
        deadline = time.monotonic() + self._timeout_s
        try:
            producer.begin_transaction()
            fault_points.before("kafka.produce")
            producer.queue(self._placed(outputs))
            fault_points.after("kafka.produce")
            if offsets:
                fault_points.before("kafka.offsets")
                producer.send_offsets_within(offsets, membership, deadline - time.monotonic())
                fault_points.after("kafka.offsets")
            fault_points.before("kafka.commit")
            producer.commit_within(max(0.0, deadline - time.monotonic()))
            fault_points.after("kafka.commit")
        except KafkaError as error:
            cause = producer.cause or error
            self._give_up(producer)
            raise self._meaning(cause) from error
        except TransportError:
            self._give_up(producer)
            raise

    def try_one(self) -> None:
        """Opens a transaction and aborts it, writing nothing."""
        producer = self._started()
        try:
            producer.begin_transaction()
            fault_points.before("kafka.abort")
            producer.abort_within(self._timeout_s)
            fault_points.after("kafka.abort")
        except KafkaError as error:
            self.close()
            raise transport_error(error, f"trying a transaction as {self._id}") from error

    def settle(self) -> None:
        """Returns when no transaction of ours is open any more, so that committed positions are the truth."""
        if self._left_open:
            self._started()

    def _started(self) -> BoundedProducer:
        if self._producer is None:
            doing = f"starting transactions as {self._id}"
            producer = opened(BoundedProducer, self._settings)
            try:
                fault_points.before("kafka.start")
                producer.init_transactions()
                fault_points.after("kafka.start")
            except KafkaError as error:
                producer.abandon()
                if isinstance(error, TransactionalIdAuthorizationFailedError):
                    raise TransportError(
                        f"{doing}: not allowed; give the user of log.client the right to write and describe this"
                        ' transactional id, or set log.delivery = "at_least_once"'
                    ) from error
                raise transport_error(error, doing) from error
            self._producer, self._left_open = producer, False
        return self._producer

    def _give_up(self, producer: BoundedProducer) -> None:
        """A producer is of no more use after an aborted transaction. What cannot be aborted ends when the next one
        starts, or by the brokers when its time is over."""
        try:
            fault_points.before("kafka.abort")
            producer.abort_within(_ABORT_WITHIN_S)
            fault_points.after("kafka.abort")
        except KafkaError as error:
            self._left_open = True
            _LOG.debug("transaction %s is left for the next producer to end: %s", self._id, error)
        self.close()

    def _meaning(self, error: Exception) -> TransportError:
        if isinstance(error, FencedInstanceIdError):
            return AnotherProcessError("another process has joined with this one's log.instance_id")
        # kafka-python wraps what it does not expect into a text.
        if isinstance(error, MEMBERSHIP_LOST) or "RebalanceInProgress" in str(error):
            return FencedError(
                f"the group has given the batch's partitions away ({error}); drop the batch and poll again"
            )
        if isinstance(error, (ProducerFencedError, InvalidProducerEpochError)):
            return FencedError(
                f"transaction {self._id}: another process writes under this name, or the transaction took longer than"
                " log.transaction_timeout; drop the batch and poll again"
            )
        return transport_error(error, f"committing transaction {self._id}")
