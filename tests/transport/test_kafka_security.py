"""kafka-python's log over TLS with a password: let in with the right ones, plainly refused with others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from stream_calib.errors import TransportError
from stream_calib.transport.kafka import KafkaLog
from stream_calib.transport.port import Outgoing, TopicPartition
from tests.kafka_broker import KafkaBroker
from tests.kafka_services import fresh_name
from tests.transport.kafka_logs import kafka_section
from tests.transport.kafka_polling import poll_until, values

_LISTENER = "SASL_SSL"
_PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_scores="right";'


class Secured(NamedTuple):
    address: str
    authority: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker that speaks SASL/PLAIN over TLS, for the user `scores` with the password `right`."""
    directory = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    store = directory / "broker.pem"
    chain = b"".join(part.bytes() for part in certificate.cert_chain_pems)
    store.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + chain)
    authority.cert_pem.write_to_path(str(directory / "authority.pem"))
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "sasl.enabled.mechanisms": "PLAIN",
        f"listener.name.{_LISTENER.lower()}.plain.sasl.jaas.config": _PLAIN,
    }
    with KafkaBroker(properties=properties, listeners=[_LISTENER]) as broker:
        yield Secured(broker.address(_LISTENER), directory / "authority.pem")


def secured_log(secured: Secured, monkeypatch: pytest.MonkeyPatch, password: str, authority: Path) -> KafkaLog:
    monkeypatch.setenv("LOG_PASSWORD", password)
    client = {
        "security_protocol": _LISTENER,
        "ssl_cafile": str(authority),
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "scores",
        "bootstrap_timeout_ms": 3_000,
    }
    secrets = {"sasl_plain_password": "env:LOG_PASSWORD"}
    return KafkaLog(
        kafka_section(
            secured.address, client=client, client_secrets=secrets, session_timeout="20s", transaction_timeout="15s"
        )
    )


def test_every_client_is_let_in(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = fresh_name("in")
    with secured_log(secured, monkeypatch, "right", secured.authority) as log:
        log.create_topic(topic, 1)
        log.produce([Outgoing(topic, None, b"v0")])
        with log.consumer("g", [topic], member="a") as consumer:
            _, records = poll_until(consumer, lambda _, records: len(records) == 1)
            consumer.commit([Outgoing(topic, None, b"v1")], {TopicPartition(topic, 0): 1})
            _, more = poll_until(consumer, lambda _, records: len(records) == 1)
        assert values(records + more) == [b"v0", b"v1"]
        assert len(log.read(TopicPartition(topic, 0), 0, 10)) == 2


def test_a_wrong_password_is_said_without_showing_it(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        secured_log(secured, monkeypatch, "hunter2", secured.authority) as log,
        pytest.raises(TransportError, match=r"do not let us in .*sasl_") as raised,
    ):
        log.partitions("in")
    assert "hunter2" not in str(raised.value)


def test_a_broker_that_is_not_trusted_is_said(
    secured: Secured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stranger = tmp_path / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(str(stranger))
    with (
        secured_log(secured, monkeypatch, "right", stranger) as log,
        pytest.raises(TransportError, match=r"do not let us in .*ssl_"),
    ):
        log.partitions("in")
