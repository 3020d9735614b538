"""Which settings reach which of kafka-python's clients, and which are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_calib.config_connections import LogSection
from stream_calib.errors import ConfigurationError
from stream_calib.transport.kafka import KafkaLog
from stream_calib.transport.kafka_settings import ClientSettings, TokenProvider


def section(**values: object) -> LogSection:
    return LogSection.model_validate({"kind": "kafka", "bootstrap_servers": "a:1, b:2", **values})


def test_a_member_leaves_positions_and_their_loss_to_us() -> None:
    log = section(session_timeout="9s", transaction_timeout="7s", metadata_max_age="4s", instance_id="pod-0")
    settings = ClientSettings(log)
    member = settings.consumer("p.g", "host-1")
    assert member["bootstrap_servers"] == ["a:1", "b:2"]
    assert member["group_id"] == "p.g"
    assert member["client_id"] == "host-1"
    assert member["group_instance_id"] == "pod-0"
    assert member["session_timeout_ms"] == 9_000
    assert member["heartbeat_interval_ms"] == 3_000
    assert member["metadata_max_age_ms"] == 4_000
    assert member["isolation_level"] == "read_committed"
    assert member["enable_auto_commit"] is False
    assert member["auto_offset_reset"] == "none"
    assert member["fetch_max_bytes"] == 32 << 20
    producer = settings.transactional_producer("p.g.pod-0")
    assert producer["transactional_id"] == "p.g.pod-0"
    assert producer["transaction_timeout_ms"] == 7_000
    assert "group_instance_id" not in ClientSettings(section()).consumer("p.g", "host-1")


def test_the_deployments_settings_go_to_the_clients_that_know_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "hunter2")
    log = section(
        client={
            "client_id": "scores",
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": "u",
            "compression_type": "lz4",
            "fetch_max_bytes": 1_000_000,
            "max_poll_interval_ms": 60_000,
        },
        client_secrets={"sasl_plain_password": "env:PASSWORD"},
    )
    settings = ClientSettings(log)
    for client in (settings.consumer("g", "m"), settings.reader(), settings.producer(), settings.admin()):
        assert client["client_id"] == "scores"
        assert client["sasl_mechanism"] == "SCRAM-SHA-512"
        assert client["sasl_plain_password"] == "hunter2"
    assert settings.producer()["compression_type"] == "lz4"
    assert "compression_type" not in settings.reader()
    assert settings.reader()["fetch_max_bytes"] == 1_000_000
    assert "fetch_max_bytes" not in settings.producer()
    assert settings.consumer("g", "m")["max_poll_interval_ms"] == 60_000


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("isolation_level", "read_uncommitted", "aborted transaction"),
        ("enable_auto_commit", True, "positions are committed with the outputs"),
        ("auto_offset_reset", "earliest", "log.on_position_lost"),
        ("transactional_id", "x", "log.group_prefix"),
        ("group_instance_id", "x", "log.instance_id"),
        ("session_timeout_ms", 1, "log.session_timeout"),
        ("metadata_max_age_ms", 1, "log.metadata_max_age"),
        ("bootstrap_servers", "x:1", "log.bootstrap_servers"),
        ("acks", 1, "in-sync replica"),
        ("value_deserializer", "x", "code"),
        ("sasl_mechanizm", "PLAIN", "did you mean sasl_mechanism"),
        ("security.protocol", "SSL", "did you mean security_protocol"),
        ("nothing_of_the_kind", 1, "has no setting nothing_of_the_kind"),
    ],
)
def test_what_is_unknown_or_would_break_a_guarantee_is_refused(name: str, value: object, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        KafkaLog(section(client={name: value}))


def test_a_secret_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigurationError, match="NOT_SET_ANYWHERE"):
        KafkaLog(section(client_secrets={"ssl_password": "env:NOT_SET_ANYWHERE"}))


def test_a_token_is_read_again_for_each_connection(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    log = section(
        client={"sasl_mechanism": "OAUTHBEARER", "security_protocol": "SASL_SSL"},
        client_secrets={"sasl_oauth_token": f"file:{file}"},
    )
    provider = ClientSettings(log).admin()["sasl_oauth_token_provider"]
    assert isinstance(provider, TokenProvider)
    assert provider.token() == "first"
    file.write_text("second\n")
    assert provider.token() == "second"
    file.unlink()
    with pytest.raises(ConfigurationError, match="sasl_oauth_token"):
        provider.token()


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigurationError, match="ssl_cafile = /does/not/exist"):
        KafkaLog(section(client={"security_protocol": "SSL", "ssl_cafile": "/does/not/exist"}))


@pytest.mark.parametrize(("name", "value"), [("security_protocol", "SASL-SSL"), ("sasl_mechanism", "SCRAM")])
def test_a_protocol_or_mechanism_that_is_none_is_refused(name: str, value: str) -> None:
    # With security_protocol = "SASL-SSL" kafka-python would speak in plain text, without a word.
    with pytest.raises(ConfigurationError, match=f"{name} = {value} is none of"):
        KafkaLog(section(client={name: value}))
