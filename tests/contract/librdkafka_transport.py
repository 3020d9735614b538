"""The contract suite over a real Kafka through librdkafka; what an operator does is as for kafka-python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from stream_calib.config_connections import LogSection
from stream_calib.transport.librdkafka import LibrdkafkaLog
from stream_calib.transport.librdkafka_consumer import LibrdkafkaConsumer
from stream_calib.transport.port import Log, StartAt
from tests.contract.kafka_transport import KafkaTransport, SettledKafkaLog


class SettledLibrdkafkaLog(LibrdkafkaLog):
    """Knows when the ends of all transactions have reached a topic; its end is that of the members that are left.

    A consumer of librdkafka's that is not closed is freed by whatever thread collects garbage next, as one of
    kafka-python's, which then stands still in it for ever.
    """

    def __init__(self, section: LogSection, operator: Any) -> None:
        super().__init__(section)
        self._settled = SettledKafkaLog(section, operator)
        self._members = ExitStack()

    def consumer(
        self,
        group: str,
        topics: Sequence[str],
        *,
        member: str,
        start: StartAt = StartAt(),  # noqa: B008 - StartAt is an immutable tuple
    ) -> LibrdkafkaConsumer:
        return self._members.enter_context(super().consumer(group, topics, member=member, start=start))

    def wait_for_open_transactions(self, topic: str) -> None:
        self._settled.wait_for_open_transactions(topic)

    def close(self) -> None:
        self._members.close()
        super().close()
        self._settled.close()


class LibrdkafkaTransport(KafkaTransport):
    def _connect(self, identity: str | None) -> Log:
        log = SettledLibrdkafkaLog(self._section(identity), self._operator)
        self._open.append(log)
        return log


@pytest.fixture
def librdkafka_transport(kafka_bootstrap: str) -> Iterator[LibrdkafkaTransport]:
    transport = LibrdkafkaTransport(kafka_bootstrap)
    yield transport
    transport.close()
