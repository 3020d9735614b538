"""The log on Apache Kafka through librdkafka (confluent-kafka)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer as Client
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType

from stream_calib.config_connections import LogSection
from stream_calib.errors import TransportError, UnknownTopicError
from stream_calib.transport.librdkafka_consumer import LibrdkafkaConsumer
from stream_calib.transport.librdkafka_errors import transport_error
from stream_calib.transport.librdkafka_records import split
from stream_calib.transport.librdkafka_settings import ClientSettings
from stream_calib.transport.librdkafka_topics import REQUEST_TIMEOUT_S, TopicCatalogue, client
from stream_calib.transport.librdkafka_writer import PlainWriter, TransactionalWriter
from stream_calib.transport.port import Log, Outgoing, Record, StartAt, TopicPartition

_WRITE_TIMEOUT_MS = 30_000
_BROKERS_DEFAULT = -1
_LOOK_AGAIN_S = 0.02
_SLICE_S = 0.1


class LibrdkafkaLog(Log):
    """See `Log`. Not thread-safe."""

    def __init__(self, section: LogSection) -> None:
        """Raises ConfigurationError for settings that cannot be used. Connects when it is first asked something."""
        self._section = section
        self._settings = ClientSettings(section)
        self._topics = TopicCatalogue(self._settings, section.metadata_max_age_ms)
        self._writer = PlainWriter(self._topics, self._settings, _WRITE_TIMEOUT_MS)
        self._reader: Client | None = None

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        if partitions < 1:
            raise TransportError(f"topic {topic} with {partitions} partitions: at least 1 is needed")
        wanted = NewTopic(
            topic,
            num_partitions=partitions,
            replication_factor=self._section.replication_factor or _BROKERS_DEFAULT,
            config=dict(settings or {}),
        )
        asked = self._topics.admin.create_topics([wanted], request_timeout=REQUEST_TIMEOUT_S)[topic]
        try:
            self._topics.wait_for(asked, f"creating topic {topic}")
        except TransportError as error:
            cause = error.__cause__
            if not isinstance(cause, KafkaException) or cause.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        found = self._wait_until_known(topic)
        if found != partitions:
            raise TransportError(f"topic {topic} exists with {found} partitions, not {partitions}")

    def partitions(self, topic: str) -> int:
        return self._topics.identity(topic).partitions

    def topic_id(self, topic: str) -> str:
        return self._topics.identity(topic).id

    def end_offset(self, partition: TopicPartition) -> int:
        return self._topics.end_offsets([partition])[partition]

    def offset_at(self, partition: TopicPartition, time_ms: int) -> int:
        found = self._topics.offsets({partition: max(0, time_ms)})[partition]
        return found if found >= 0 else self.end_offset(partition)

    def topic_settings(self, topic: str) -> Mapping[str, str] | None:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        asked = self._topics.admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource]
        found = self._topics.wait_for(asked, f"asking for the settings of topic {topic}", topic)
        return {name: entry.value for name, entry in found.items() if entry.value is not None}

    def group_positions(self, group: str, topic: str) -> Mapping[int, int] | None:
        name = self._group_name(group)
        wanted = [Position(topic, p) for p in range(self.partitions(topic))]
        asked = self._topics.admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name, wanted)], request_timeout=REQUEST_TIMEOUT_S
        )[name]
        found = self._topics.wait_for(asked, f"asking for the positions of group {name}")
        return {p.partition: p.offset for p in found.topic_partitions if p.offset >= 0}

    def try_transaction(self) -> None:
        if self._section.delivery != "exactly_once":
            return
        writer = self._transactional_writer(f"{self._section.group_prefix}.trial")
        try:
            writer.try_one()
        finally:
            writer.close()

    def produce(self, outputs: Sequence[Outgoing]) -> None:
        self._writer.write(outputs)

    def consumer(
        self,
        group: str,
        topics: Sequence[str],
        *,
        member: str,
        start: StartAt = StartAt(),  # noqa: B008 - StartAt is an immutable tuple
    ) -> LibrdkafkaConsumer:
        name = self._group_name(group)
        writer: TransactionalWriter | PlainWriter
        if self._section.delivery == "exactly_once":
            writer = self._transactional_writer(f"{name}.{self._section.instance_id or member}")
        else:
            writer = PlainWriter(self._topics, self._settings, _WRITE_TIMEOUT_MS)
        settings = self._settings.consumer(name, member)
        return LibrdkafkaConsumer(settings, self._topics, writer, topics, start, self._section.metadata_max_age_ms)

    def read(self, partition: TopicPartition, start: int, max_records: int) -> list[Record]:
        first, end = self._topics.first_offsets([partition])[partition], self.end_offset(partition)
        position = max(start, first)
        if position >= end or max_records < 1:
            return []
        if self._reader is None:
            self._reader = client(Client, self._settings.reader())
        self._reader.assign([Position(partition.topic, partition.partition, position)])
        records: list[Record] = []
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        try:
            while len(records) < max_records:
                runs, events = split(self._reader.consume(max_records - len(records), 0.0) or self._next())
                for _, run in runs:
                    records += run
                    deadline = time.monotonic() + REQUEST_TIMEOUT_S
                codes = [event.error() for event in events]
                if any(error.code() == KafkaError._PARTITION_EOF for error in codes):
                    break
                if codes and not codes[0].retriable():
                    raise transport_error(codes[0], f"reading {partition} from {position}")
                if time.monotonic() > deadline:
                    raise TransportError(f"reading {partition}: no record within {REQUEST_TIMEOUT_S:g} s")
        finally:
            self._reader.unassign()
        return records

    def close(self) -> None:
        self._writer.close()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
        self._topics.close()

    def _next(self) -> list[object]:
        assert self._reader is not None
        return list(self._reader.consume(1, _SLICE_S))

    def _group_name(self, group: str) -> str:
        return f"{self._section.group_prefix}.{group}"

    def _transactional_writer(self, transactional_id: str) -> TransactionalWriter:
        timeout_ms = self._section.transaction_timeout_ms + 2_000
        return TransactionalWriter(self._topics, self._settings, transactional_id, timeout_ms)

    def _wait_until_known(self, topic: str) -> int:
        """A created topic takes a moment until every broker knows it. Returns its number of partitions."""
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        while True:
            try:
                return self.partitions(topic)
            except UnknownTopicError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK_AGAIN_S)
