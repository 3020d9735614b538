"""Writing: a batch of records with the group's positions as one transaction, or records alone."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from stream_calib import fault_points
from stream_calib.errors import AnotherProcessError, FencedError, TransportError
from stream_calib.transport.librdkafka_errors import (
    ANOTHER_PROCESS,
    MEMBERSHIP_LOST,
    is_fatal,
    transport_error,
)
from stream_calib.transport.librdkafka_settings import ClientSettings
from stream_calib.transport.librdkafka_topics import TopicCatalogue, client
from stream_calib.transport.partitioning import Partitioner
from stream_calib.transport.port import Outgoing

_LOG = logging.getLogger(__name__)

_BY_KEY = -1
"""librdkafka chooses, by CRC-32 of the key: what `Partitioner` does, without a step in Python."""
_ROOM_WAIT_S = 0.05


class Writer(ABC):
    """What both ways of writing share: checks before, queueing, and a producer that is replaced when it fails."""

    def __init__(self, topics: TopicCatalogue, settings: dict[str, Any], timeout_ms: int) -> None:
        self._topics = topics
        self._timeout_s = timeout_ms / 1_000
        self._settings = {**settings, "on_delivery": self._note_failure}
        self._partitioner = Partitioner()
        self._producer: Producer | None = None
        self._failures: list[tuple[KafkaError, str]] = []

    def close(self) -> None:
        """Drops what is not written."""
        self._discard()

    @abstractmethod
    def _started(self) -> Producer: ...

    def _check(self, outputs: Sequence[Outgoing]) -> None:
        """Raises before anything is written where a record asks for a topic or partition that is not there."""
        for topic, partition in {(output.topic, output.partition) for output in outputs}:
            count = self._topics.partition_count(topic)
            if partition is not None and partition >= count:
                count = self._topics.identity(topic).partitions
                self._discard()  # a new client knows of partitions that have been added
            if partition is not None:
                self._partitioner.choose(Outgoing(topic, None, None, (), partition), count)

    def _queue(self, producer: Producer, outputs: Sequence[Outgoing]) -> None:
        produce = producer.produce
        for topic, key, value, headers, partition in outputs:
            if partition is None:
                partition = _BY_KEY if key is not None else self._turn(topic)
            try:
                if headers:
                    produce(topic, value, key, partition, headers=list(headers))
                else:
                    produce(topic, value, key, partition)
            except BufferError:
                self._queue_when_there_is_room(producer, topic, value, key, partition, headers)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                    raise
                # `_check` has found the partition: the topic has grown, and only this producer has not heard of it.
                producer.list_topics(topic, timeout=self._timeout_s)
                produce(topic, value, key, partition, headers=list(headers))

    def _queue_when_there_is_room(
        self,
        producer: Producer,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        headers: Sequence[tuple[str, bytes]],
    ) -> None:
        deadline = time.monotonic() + self._timeout_s
        while True:
            producer.poll(_ROOM_WAIT_S)
            try:
                producer.produce(topic, value, key, partition, headers=list(headers))
                return
            except BufferError:
                if time.monotonic() > deadline:
                    raise TransportError(
                        f"writing to topic {topic}: the brokers take nothing within {self._timeout_s:g} s"
                    ) from None

    def _turn(self, topic: str) -> int:
        return self._partitioner.choose(Outgoing(topic, None, None), self._topics.partition_count(topic))

    def _note_failure(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._failures.append((error, message.topic()))

    def _first_failure(self) -> TransportError | None:
        failures, self._failures = self._failures, []
        for error, topic in failures:
            if error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
                return transport_error(error, f"writing to topic {topic}")
        return None

    def _discard(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            # Ends without waiting for what is queued; the next producer of the same transactions aborts the open one.
            producer.purge()
            try:
                producer.poll(0)
            except KafkaException as error:
                # What was fatal to it is raised again by each call; whoever discards it has told it already.
                _LOG.debug("a producer is discarded: %s", error)
        self._failures = []


class PlainWriter(Writer):
    """Records alone; idempotent, acknowledged by all in-sync replicas."""

    def __init__(self, topics: TopicCatalogue, settings: ClientSettings, timeout_ms: int) -> None:
        super().__init__(topics, settings.producer(), timeout_ms)

    def write(self, outputs: Sequence[Outgoing]) -> None:
        """Returns when the brokers have them all. Raises TransportError when some may not have been written."""
        if not outputs:
            return
        self._check(outputs)
        producer = self._started()
        try:
            fault_points.before("kafka.flush")
            self._queue(producer, outputs)
            unsent = producer.flush(self._timeout_s)
            fault_points.after("kafka.flush")
        except (KafkaException, TransportError) as error:
            self._discard()
            if isinstance(error, TransportError):
                raise
            raise transport_error(error.args[0], "writing") from error
        failure = self._first_failure()
        if unsent or failure:
            self._discard()
            raise failure or TransportError(
                f"writing: {unsent} of {len(outputs)} records were not taken within {self._timeout_s:g} s"
            )

    def _started(self) -> Producer:
        if self._producer is None:
            self._producer = client(Producer, self._settings)
        return self._producer


class TransactionalWriter(Writer):
    """Each `write` is one transaction. One transactional id for its whole life, so a new producer ends what the one
    before it left open."""

    def __init__(
        self, topics: TopicCatalogue, settings: ClientSettings, transactional_id: str, timeout_ms: int
    ) -> None:
        super().__init__(topics, settings.transactional_producer(transactional_id), timeout_ms)
        self._id = transactional_id

    def write(self, outputs: Sequence[Outgoing], offsets: list[Any], membership: Any) -> None:
        """Outputs and offsets (confluent_kafka.TopicPartition) as one.

        `membership`: the group metadata under which the offsets were read. Raises FencedError when the group has given
        the partitions to somebody else meanwhile, TransportError when it is not known to have happened.
        """
        self._check(outputs)
        producer = self._started()
        try:
            producer.begin_transaction()
            fault_points.before("kafka.produce")
            self._queue(producer, outputs)
            fault_points.after("kafka.produce")
            if offsets:
                fault_points.before("kafka.offsets")
                producer.send_offsets_to_transaction(offsets, membership, self._timeout_s)
                fault_points.after("kafka.offsets")
            fault_points.before("kafka.commit")
            producer.commit_transaction(self._timeout_s)
            fault_points.after("kafka.commit")
        except KafkaException as error:
            self._give_up(producer, error.args[0])
            raise self._meaning(error.args[0]) from error
        except TransportError:
            self._give_up(producer)
            raise
        self._failures = []

    def try_one(self) -> None:
        """Opens a transaction and aborts it, writing nothing."""
        producer = self._started()
        try:
            producer.begin_transaction()
            fault_points.before("kafka.abort")
            producer.abort_transaction(self._timeout_s)
            fault_points.after("kafka.abort")
        except KafkaException as error:
            raise transport_error(error.args[0], f"trying a transaction as {self._id}") from error

    def settle(self) -> None:
        """Returns when no transaction of ours is open any more, so that committed positions are the truth."""
        self._started()

    def _started(self) -> Producer:
        if self._producer is None:
            producer = client(Producer, self._settings)
            try:
                fault_points.before("kafka.start")
                producer.init_transactions(self._timeout_s)
                fault_points.after("kafka.start")
            except KafkaException as error:
                raise transport_error(error.args[0], f"starting transactions as {self._id}") from error
            self._producer = producer
        return self._producer

    def _give_up(self, producer: Producer, error: KafkaError | None = None) -> None:
        """A producer is of no more use after an aborted transaction: librdkafka may have lost count of what the brokers
        have. One that ran out of time is left to the next producer, whose start settles what became of it."""
        if error is None or not (is_fatal(error) or error.retriable()):
            try:
                fault_points.before("kafka.abort")
                producer.abort_transaction(self._timeout_s)
                fault_points.after("kafka.abort")
            except KafkaException as failed:
                _LOG.debug("transaction %s is left for the next producer to end: %s", self._id, failed)
        failures = self._failures
        self._discard()
        self._failures = failures

    def _meaning(self, error: KafkaError) -> TransportError:
        failure = self._first_failure()
        code = error.code()
        if code in ANOTHER_PROCESS:
            return AnotherProcessError(error.str())
        if code in MEMBERSHIP_LOST:
            return FencedError(
                f"the group has given the batch's partitions away ({error.str()}); drop the batch and poll again"
            )
        if code in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
            return FencedError(
                f"transaction {self._id}: another process writes under this name, or the transaction ran out of"
                f" time ({error.str()}); drop the batch and poll again"
            )
        return failure or transport_error(error, f"committing transaction {self._id}")
