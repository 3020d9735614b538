"""The contract suite over a real Kafka through librdkafka; what an operator does is as for kafka-python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stream_calib.config_connections import LogSection
from stream_calib.transport.librdkafka import LibrdkafkaLog
from stream_calib.transport.port import Log
from tests.contract.kafka_transport import KafkaTransport, SettledKafkaLog


class SettledLibrdkafkaLog(LibrdkafkaLog):
    """Knows when the ends of all transactions have reached a topic."""

    def __init__(self, section: LogSection, operator: Any) -> None:
        super().__init__(section)
        self._settled = SettledKafkaLog(section, operator)

    def wait_for_open_transactions(self, topic: str) -> None:
        self._settled.wait_for_open_transactions(topic)

    def close(self) -> None:
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
