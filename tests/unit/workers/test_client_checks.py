"""Settings that are passed on to client libraries are judged before anything connects."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stream_calib.config import Config
from stream_calib.errors import ConfigurationError
from workers.cli import app
from workers.client_checks import check_client_settings


def config_of(**sections: Any) -> Config:
    return Config.model_validate({"model": {"name": "m"}, "windows": {"horizon": "1d"}, **sections})


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        ({"redis": {"client": {"socket_keepaliv": True}}}, "did you mean socket_keepalive"),
        ({"redis": {"client": {"ssl_ciphers": "ALL"}}}, "no effect without TLS"),
        ({"redis": {"client_secrets": {"password": "env:NOWHERE_TO_BE_FOUND"}}}, "NOWHERE_TO_BE_FOUND"),
        ({"log": {"kind": "kafka", "client": {"security_protocl": "SSL"}}}, "did you mean security_protocol"),
        ({"log": {"kind": "kafka", "client": {"acks": "1"}}}, "acks cannot be set"),
        ({"log": {"kind": "librdkafka", "client": {"security.protocl": "ssl"}}}, "did you mean security.protocol"),
        ({"log": {"kind": "librdkafka", "client": {"fetch.min.bytes": "many"}}}, "fetch.min.bytes"),
        ({"log": {"kind": "librdkafka", "client": {"batch.num.messages": "few"}}}, "batch.num.messages"),
        ({"log": {"kind": "librdkafka", "client": {"acks": "1"}}}, "acks cannot be set"),
    ],
)
def test_what_a_client_does_not_take(sections: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        check_client_settings(config_of(**sections))


@pytest.mark.parametrize("kind", ["kafka", "librdkafka"])
@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_good_settings_are_judged_without_a_connection(kind: str, delivery: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        client = {"linger_ms": 5} if kind == "kafka" else {"linger.ms": 5, "fetch.min.bytes": 1}
        log = {"kind": kind, "bootstrap_servers": address, "delivery": delivery, "client": client}
        check_client_settings(config_of(log=log, redis={"url": f"redis://{address}/0"}))
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()


def test_the_command_says_it(tmp_path: Path) -> None:
    file = tmp_path / "stream-calib.toml"
    file.write_text(
        '[[models]]\nname = "a"\nscore = "a"\n[[models]]\nname = "b"\nscore = "b"\n[windows]\nhorizon = "1d"\n'
    )
    good = CliRunner().invoke(app, ["config", "check", "--config", str(file)])
    assert good.exit_code == 0
    assert "good; a/1, b/1; state" in " ".join(good.output.split())

    file.write_text('[model]\nname = "m"\n[windows]\nhorizon = "1d"\n[redis.client]\nsocket_keepaliv = true\n')
    bad = CliRunner().invoke(app, ["config", "check", "--config", str(file)])
    assert bad.exit_code == 1
    assert "did you mean socket_keepalive" in " ".join(bad.output.split())
