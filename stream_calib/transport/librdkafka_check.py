"""Whether librdkafka takes a deployment's settings, without a connection."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from stream_calib.config_connections import LogSection
from stream_calib.transport.librdkafka_settings import ClientSettings
from stream_calib.transport.librdkafka_topics import client

_NAME = "stream-calib.check"


def check_settings(section: LogSection) -> None:
    """Makes each kind of client once, without brokers. Raises ConfigurationError for what librdkafka does not take."""
    settings = ClientSettings(section)
    exactly_once = section.delivery == "exactly_once"
    client(AdminClient, _without_brokers(settings.admin()))
    client(Consumer, _without_brokers(settings.consumer(_NAME, _NAME))).close()
    client(Producer, _without_brokers(settings.transactional_producer(_NAME) if exactly_once else settings.producer()))


def _without_brokers(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != "bootstrap.servers"}
