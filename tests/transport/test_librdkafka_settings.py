"""Settings of librdkafka's clients: what is passed on, what is refused and why."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from stream_calib.config import Config
from stream_calib.config_connections import LogSection
from stream_calib.errors import ConfigurationError
from stream_calib.transport.librdkafka import LibrdkafkaLog
from stream_calib.transport.librdkafka_settings import ClientSettings
from stream_calib.transport.librdkafka_topics import client
from workers.deployment import open_log


def section(**values: object) -> LogSection:
    return LogSection.model_validate({"kind": "librdkafka", **values})


def test_the_deployments_settings_go_to_every_client_that_has_a_use_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALIB_PASSWORD", "secret")
    (tmp_path / "key").write_text("pass\n")
    settings = ClientSettings(
        section(
            client={"security.protocol": "SASL_SSL", "linger.ms": 7, "fetch.min.bytes": 9, "client.id": "me"},
            client_secrets={"sasl.password": "env:CALIB_PASSWORD", "ssl.key.password": f"file:{tmp_path / 'key'}"},
        )
    )
    common = {"security.protocol": "SASL_SSL", "sasl.password": "secret", "ssl.key.password": "pass", "client.id": "me"}
    consumer, producer = settings.consumer("g", "a"), settings.producer()
    for made in (consumer, producer, settings.transactional_producer("t"), settings.reader(), settings.admin()):
        assert common.items() <= made.items()
    assert (consumer["fetch.min.bytes"], producer["linger.ms"]) == (9, 7)
    assert "linger.ms" not in consumer
    assert "fetch.min.bytes" not in producer


def test_librdkafka_takes_our_settings_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    settings = ClientSettings(section(client={"compression.type": "lz4"}))
    client(Consumer, settings.consumer("g", "a")).close()
    producer = client(Producer, settings.transactional_producer("t"))
    producer.poll(0)
    assert "CONFWARN" not in caplog.text


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("isolation.level", "read_uncommitted", "must never be read"),
        ("enable.auto.commit", True, "committed with the outputs"),
        ("auto.offset.reset", "latest", "on_position_lost"),
        ("transactional.id", "x", "group_prefix"),
        ("bootstrap.servers", "x:1", "log.bootstrap_servers"),
        ("partitioner", "random", "one partition"),
        ("error_cb", "x", "callbacks are code"),
    ],
)
def test_settings_that_would_break_a_guarantee_are_refused(name: str, value: object, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as refusal:
        LibrdkafkaLog(section(client={name: value}))
    assert f"log.client: {name} cannot be set" in str(refusal.value)


def test_an_unknown_name_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(ConfigurationError, match=r"sasl.usernam.*did you mean sasl.username\?"):
        LibrdkafkaLog(section(client={"sasl.usernam": "me"}))
    with pytest.raises(ConfigurationError, match=r"security\.protocol"):
        LibrdkafkaLog(section(client={"security.protocol": "nonsense"}))


def test_a_secret_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"sasl.password = file:.*cannot be read"):
        LibrdkafkaLog(section(client_secrets={"sasl.password": f"file:{tmp_path / 'none'}"}))


_ON_LIBRDKAFKA = Config.model_validate(
    {"model": {"name": "m", "version": "1"}, "windows": {"horizon": "1h"}, "log": {"kind": "librdkafka"}}
)


def test_without_confluent_kafka_the_way_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "stream_calib.transport.librdkafka")
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ConfigurationError, match=r"pip install stream-calib\[fast\]"):
        open_log(_ON_LIBRDKAFKA)


def test_another_import_that_fails_is_not_taken_for_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "stream_calib.transport.librdkafka", None)
    with pytest.raises(ImportError, match=r"stream_calib\.transport\.librdkafka"):
        open_log(_ON_LIBRDKAFKA)
