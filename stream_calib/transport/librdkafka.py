"""The log on Apache Kafka through librdkafka (confluent-kafka)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from confluent_kafka import Consumer as Client
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import ConfigResource, ResourceType

from stream_calib.config_connections import LogSection
from stream_calib.errors import TransportError
from stream_calib.transport.kafka_log import WRITE_WITHIN_MS, LogOnKafka
from stream_calib.transport.librdkafka_consumer import LibrdkafkaConsumer
from stream_calib.transport.librdkafka_errors import transport_error
from stream_calib.transport.librdkafka_records import split
from stream_calib.transport.librdkafka_settings import ClientSettings
from stream_calib.transport.librdkafka_topics import REQUEST_TIMEOUT_S, TopicCatalogue, client
from stream_calib.transport.librdkafka_writer import PlainWriter, TransactionalWriter
from stream_calib.transport.port import Log, Record, StartAt, TopicPartition

_SLICE_S = 0.1


class LibrdkafkaLog(LogOnKafka):
    """See `Log`. Not thread-safe."""

    def __init__(self, section: LogSection) -> None:
        """Raises ConfigurationError for settings that cannot be used. Connects when it is first asked something."""
        self._settings = ClientSettings(section)
        self._topics = TopicCatalogue(self._settings, section.metadata_max_age_ms)
        self._writer = PlainWriter(self._topics, self._settings, WRITE_WITHIN_MS)
        super().__init__(section, self._topics, self._writer)
        self._reader: Client | None = None

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
        if self._has_transactions:
            writer = self._transactions(self._transactional_id(name, member))
        else:
            writer = PlainWriter(self._topics, self._settings, WRITE_WITHIN_MS)
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

    def opener(self) -> Callable[[], Log]:
        return partial(LibrdkafkaLog, self._section)

    def close(self) -> None:
        self._writer.close()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
        self._topics.close()

    def _next(self) -> list[object]:
        assert self._reader is not None
        return list(self._reader.consume(1, _SLICE_S))

    def _transactions(self, transactional_id: str) -> TransactionalWriter:
        return TransactionalWriter(self._topics, self._settings, transactional_id, self._transaction_within_ms)
