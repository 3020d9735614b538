"""Logs on a test broker through librdkafka, with short timeouts and names of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stream_calib.config_connections import LogSection
from stream_calib.transport.librdkafka import LibrdkafkaLog
from tests.kafka_services import fresh_name


def log_section(bootstrap: str, **values: object) -> LogSection:
    """Short timeouts; a group prefix of its own unless one is given."""
    given = {"group_prefix": fresh_name("test"), "session_timeout": "6s", "transaction_timeout": "2s", **values}
    return LogSection.model_validate(
        {"kind": "librdkafka", "bootstrap_servers": bootstrap, "metadata_max_age": "300ms", **given}
    )


@pytest.fixture
def log(kafka_bootstrap: str) -> Iterator[LibrdkafkaLog]:
    with LibrdkafkaLog(log_section(kafka_bootstrap)) as opened:
        yield opened


@pytest.fixture
def topic(log: LibrdkafkaLog) -> str:
    """A fresh topic of two partitions."""
    name = fresh_name("in")
    log.create_topic(name, 2)
    return name
