"""librdkafka's log over TLS with a password: let in with the right ones, plainly refused with others."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from stream_calib.errors import TransportError
from stream_calib.transport.librdkafka import LibrdkafkaLog
from stream_calib.transport.port import Outgoing, TopicPartition
from tests.kafka_services import fresh_name
from tests.transport.kafka_polling import numbered, poll_until
from tests.transport.librdkafka_logs import log_section
from tests.transport.test_kafka_security import Secured, secured

__all__ = ["secured"]


def secured_log(secured: Secured, monkeypatch: pytest.MonkeyPatch, password: str, authority: Path) -> LibrdkafkaLog:
    monkeypatch.setenv("LOG_PASSWORD", password)
    client = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "scores",
        "ssl.ca.location": str(authority),
    }
    secrets = {"sasl.password": "env:LOG_PASSWORD"}
    return LibrdkafkaLog(log_section(secured.address, client=client, client_secrets=secrets))


def test_every_client_is_let_in(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = fresh_name("in")
    partition = TopicPartition(topic, 0)
    with secured_log(secured, monkeypatch, "right", secured.authority) as log:
        log.create_topic(topic, 1)
        log.produce(numbered(3, topic=topic))
        with log.consumer("g", [topic], member="a") as consumer:
            poll_until(consumer, lambda _, records: len(records) == 3)
            consumer.commit([Outgoing(topic, None, b"more")], {partition: 3})
            assert consumer.committed(partition) == 3
        assert len(log.read(partition, 0, 3)) == 3
        log.try_transaction()


def test_a_wrong_password_is_said_plainly_and_never_shown(
    secured: Secured, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        secured_log(secured, monkeypatch, "wr0ng-s3cret", secured.authority) as log,
        pytest.raises(TransportError, match="do not let us in") as told,
    ):
        log.partitions("in")
    assert "check log.client" in str(told.value)
    assert "wr0ng-s3cret" not in str(told.value) + caplog.text


def test_an_authority_that_is_not_trusted_is_said_plainly(
    secured: Secured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stranger = tmp_path / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(str(stranger))
    with (
        secured_log(secured, monkeypatch, "right", stranger) as log,
        pytest.raises(TransportError, match="do not let us in"),
    ):
        log.partitions("in")
