"""The log on Apache Kafka through kafka-python."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    KafkaError,
    NotCoordinatorError,
)

from stream_calib.config_connections import LogSection
from stream_calib.errors import TransportError
from stream_calib.transport.kafka_consumer import KafkaMember
from stream_calib.transport.kafka_errors import translated
from stream_calib.transport.kafka_log import WRITE_WITHIN_MS, LogOnKafka
from stream_calib.transport.kafka_records import records_of
from stream_calib.transport.kafka_settings import ClientSettings
from stream_calib.transport.kafka_topics import TopicCatalogue, opened
from stream_calib.transport.kafka_writer import PlainWriter, TransactionalWriter
from stream_calib.transport.port import Log, Record, StartAt, TopicPartition

_READ_WITHIN_S = 10.0
_SLICE_MS = 100
_LOOK_AGAIN_S = 0.1
_COORDINATOR_SOON = (CoordinatorNotAvailableError, CoordinatorLoadInProgressError, NotCoordinatorError)


class KafkaLog(LogOnKafka):
    """See `Log`. Not thread-safe; connects when it is first asked something."""

    def __init__(self, section: LogSection) -> None:
        """Raises ConfigurationError for settings that cannot be used."""
        self._settings = ClientSettings(section)
        self._topics = TopicCatalogue(self._settings, section.metadata_max_age_ms)
        self._writer = PlainWriter(self._topics, self._settings, WRITE_WITHIN_MS)
        super().__init__(section, self._topics, self._writer)
        self._reader: Any = None

    def topic_settings(self, topic: str) -> Mapping[str, str] | None:
        self.partitions(topic)
        found = self._topics.ask(
            f"asking for the settings of topic {topic}",
            lambda admin: admin.describe_configs(
                [ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all"
            ),
        )
        return {name: entry["value"] for name, entry in found["topic"][topic].items() if entry["value"] is not None}

    def group_positions(self, group: str, topic: str) -> Mapping[int, int] | None:
        name = self._group_name(group)
        wanted = [KafkaPartition(topic, p) for p in range(self.partitions(topic))]
        deadline = time.monotonic() + _READ_WITHIN_S
        while True:
            try:
                found = self._topics.ask(
                    f"asking for the positions of group {name}",
                    lambda admin: admin.list_group_offsets({name: wanted})[name],
                )
                break
            except TransportError as error:
                # On brokers that nobody has asked for a group before, the first question only makes them get ready.
                if not isinstance(error.__cause__, _COORDINATOR_SOON) or time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK_AGAIN_S)
        return {partition.partition: entry.offset for partition, entry in found.items() if entry.offset >= 0}

    def server_version(self) -> str | None:
        return f"{'.'.join(map(str, self._topics.protocol_version()))} or later"

    def consumer(
        self,
        group: str,
        topics: Sequence[str],
        *,
        member: str,
        start: StartAt = StartAt(),  # noqa: B008 - StartAt is an immutable tuple
    ) -> KafkaMember:
        name = self._group_name(group)
        writer: TransactionalWriter | PlainWriter
        if self._has_transactions:
            writer = self._transactions(self._transactional_id(name, member))
        else:
            writer = PlainWriter(self._topics, self._settings, WRITE_WITHIN_MS)
        return KafkaMember(self._settings.consumer(name, member), self._topics, writer, topics, start)

    def read(self, partition: TopicPartition, start: int, max_records: int) -> list[Record]:
        place = KafkaPartition(*partition)
        first, end = self._topics.first_offsets([partition])[partition], self.end_offset(partition)
        position = max(start, first)
        if position >= end or max_records < 1:
            return []
        with translated(f"reading {partition} from {position}"):
            if self._reader is None:
                self._reader = opened(KafkaConsumer, self._settings.reader())
            reader = self._reader
            try:
                reader.assign([place])
                reader.seek(place, position)
                return self._read_on(reader, place, end, max_records)
            except KafkaError:
                self._close_reader()
                raise

    def opener(self) -> Callable[[], Log]:
        return partial(KafkaLog, self._section)

    def _read_on(self, reader: Any, place: KafkaPartition, end: int, max_records: int) -> list[Record]:
        source = TopicPartition(*place)
        records: list[Record] = []
        deadline = time.monotonic() + _READ_WITHIN_S
        while len(records) < max_records and reader.position(place, timeout_ms=_READ_WITHIN_S * 1_000) < end:
            found = reader.poll(timeout_ms=_SLICE_MS, max_records=max_records - len(records)).get(place)
            if found:
                records += records_of(source, found)
                deadline = time.monotonic() + _READ_WITHIN_S
            elif time.monotonic() > deadline:
                raise TransportError(f"reading {source}: nothing came within {_READ_WITHIN_S:g} s")
        return records

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close(autocommit=False)

    def close(self) -> None:
        self._writer.close()
        self._close_reader()
        self._topics.close()

    def _transactions(self, transactional_id: str) -> TransactionalWriter:
        return TransactionalWriter(self._topics, self._settings, transactional_id, self._transaction_within_ms)
