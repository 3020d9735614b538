"""The log on Apache Kafka through kafka-python."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
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
from stream_calib.transport.kafka_records import records_of
from stream_calib.transport.kafka_settings import ClientSettings
from stream_calib.transport.kafka_topics import TopicCatalogue, opened
from stream_calib.transport.kafka_writer import PlainWriter, TransactionalWriter
from stream_calib.transport.port import Log, Outgoing, Record, StartAt, TopicPartition

_WRITE_WITHIN_MS = 30_000
_READ_WITHIN_S = 10.0
_SLICE_MS = 100
_LOOK_AGAIN_S = 0.1
_COORDINATOR_SOON = (CoordinatorNotAvailableError, CoordinatorLoadInProgressError, NotCoordinatorError)
_SETTLED_AFTER_MS = 2_000
"""A transaction that the brokers abort for its age is answered this much later."""


class KafkaLog(Log):
    """See `Log`. Not thread-safe; connects when it is first asked something."""

    def __init__(self, section: LogSection) -> None:
        """Raises ConfigurationError for settings that cannot be used."""
        self._section = section
        self._settings = ClientSettings(section)
        self._topics = TopicCatalogue(self._settings, section.metadata_max_age_ms)
        self._writer = PlainWriter(self._topics, self._settings, _WRITE_WITHIN_MS)
        self._reader: Any = None

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        if partitions < 1:
            raise TransportError(f"topic {topic} with {partitions} partitions: at least 1 is needed")
        found = self._topics.create(topic, partitions, self._section.replication_factor, settings or {})
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

    def try_transaction(self) -> None:
        if self._section.delivery != "exactly_once":
            return
        writer = self._transactional_writer(f"{self._section.group_prefix}.trial")
        try:
            writer.try_one()
        finally:
            writer.close()

    def server_version(self) -> str | None:
        return f"{'.'.join(map(str, self._topics.protocol_version()))} or later"

    def produce(self, outputs: Sequence[Outgoing]) -> None:
        self._writer.write(outputs)

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
        if self._section.delivery == "exactly_once":
            writer = self._transactional_writer(f"{name}.{self._section.instance_id or member}")
        else:
            writer = PlainWriter(self._topics, self._settings, _WRITE_WITHIN_MS)
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

    def _group_name(self, group: str) -> str:
        return f"{self._section.group_prefix}.{group}"

    def _transactional_writer(self, transactional_id: str) -> TransactionalWriter:
        timeout_ms = self._section.transaction_timeout_ms + _SETTLED_AFTER_MS
        return TransactionalWriter(self._topics, self._settings, transactional_id, timeout_ms)
