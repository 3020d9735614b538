"""The contract suite over a real Kafka, with what an operator does through its admin client."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import pytest
from kafka import IsolationLevel, KafkaAdminClient, OffsetSpec
from kafka import TopicPartition as KafkaPartition
from kafka.admin import MemberToRemove

from stream_calib.config_connections import LogSection
from stream_calib.errors import UnknownTopicError
from stream_calib.transport.kafka import KafkaLog
from stream_calib.transport.kafka_consumer import KafkaMember
from stream_calib.transport.port import Log, StartAt, TopicPartition
from tests.contract.transports import RUN, WAIT_S, Transport

_LOOK_AGAIN_S = 0.01
_TIMES = {"session_timeout": "6s", "transaction_timeout": "2900ms", "metadata_max_age": "200ms"}


class SettledKafkaLog(KafkaLog):
    """Knows when the ends of all transactions have reached a topic; its end is that of the members that are left."""

    def __init__(self, section: LogSection, operator: Any) -> None:
        super().__init__(section)
        self._operator = operator
        self._members = ExitStack()

    def consumer(
        self,
        group: str,
        topics: Sequence[str],
        *,
        member: str,
        start: StartAt = StartAt(),  # noqa: B008 - StartAt is an immutable tuple
    ) -> KafkaMember:
        return self._members.enter_context(super().consumer(group, topics, member=member, start=start))

    def close(self) -> None:
        self._members.close()
        super().close()

    def wait_for_open_transactions(self, topic: str) -> None:
        asked = {KafkaPartition(topic, p): OffsetSpec.LATEST for p in range(self.partitions(topic))}
        deadline = time.monotonic() + WAIT_S
        while True:
            stable, ends = (
                self._operator.list_partition_offsets(asked, isolation_level=level)
                for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
            )
            if all(stable[p].offset == ends[p].offset for p in asked):
                return
            assert time.monotonic() < deadline, (stable, ends)
            time.sleep(_LOOK_AGAIN_S)


class KafkaTransport(Transport):
    keeps_positions_of_deleted_topics = False

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._prefix = f"test-{uuid4().hex[:8]}"
        self._operator: Any = KafkaAdminClient(bootstrap_servers=bootstrap)
        self._open: list[Log] = []

    def connect(self) -> Log:
        return self._connect(None)

    def connect_as(self, identity: str) -> Log:
        return self._connect(identity)

    def silence(self, group: str, topic: str, member: str) -> None:
        name = f"{self._prefix}.{group}"
        members = self._operator.describe_groups([name])[name]["members"]
        ids = [found["member_id"] for found in members if found["client_id"] == member]
        assert ids, (member, members)
        self._operator.remove_group_members(name, [MemberToRemove(member_id=found) for found in ids])

    def trim(self, partition: TopicPartition, before: int) -> None:
        self._operator.delete_records({KafkaPartition(*partition): before})

    def grow(self, topic: str, partitions: int) -> None:
        self._operator.create_partitions({topic: partitions})

    def delete(self, topic: str) -> None:
        self._operator.delete_topics([topic])
        with KafkaLog(self._section(None)) as log:
            deadline = time.monotonic() + WAIT_S
            while True:
                try:
                    log.partitions(topic)
                except UnknownTopicError:
                    return
                assert time.monotonic() < deadline, topic
                time.sleep(_LOOK_AGAIN_S)

    def close(self) -> None:
        for log in self._open:
            log.close()
        if topics := [topic for topic in self._operator.list_topics() if topic.endswith(f"-{RUN}")]:
            self._operator.delete_topics(topics)
        self._operator.close()

    def _connect(self, identity: str | None) -> Log:
        log = SettledKafkaLog(self._section(identity), self._operator)
        self._open.append(log)
        return log

    def _section(self, identity: str | None) -> LogSection:
        return LogSection.model_validate(
            {
                "kind": "kafka",
                "bootstrap_servers": self._bootstrap,
                "group_prefix": self._prefix,
                "instance_id": identity,
                **_TIMES,
            }
        )


@pytest.fixture
def kafka_transport(kafka_bootstrap: str) -> Iterator[KafkaTransport]:
    transport = KafkaTransport(kafka_bootstrap)
    yield transport
    transport.close()
