"""The child process: comes up, keeps its data, goes away with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pytest
import redis

from stream_calib.config_connections import RedisSection
from stream_calib.errors import ConfigurationError, StreamCalibError, TransportError
from stream_calib.redis_connection import LuaScript, answering, check_server, connect
from stream_calib.transport import embedded_server
from stream_calib.transport.embedded_server import EmbeddedServer


@pytest.mark.services
@pytest.mark.parametrize("tcp", [False, True])
def test_starts_and_leaves_nothing_behind(tcp: bool) -> None:
    with EmbeddedServer(tcp=tcp) as server:
        with connect(server.url) as client:
            assert client.ping()
        pid = server.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_data_survive_a_crash_and_a_restart(own_redis: EmbeddedServer) -> None:
    with connect(own_redis.url) as client:
        client.config_set("appendfsync", "always")  # else a write may be answered before it is in the file
        client.set("a", b"1")
        own_redis.kill()
        own_redis.start()
        assert client.get("a") == b"1"
        client.set("b", b"2")
        own_redis.restart()
        assert client.mget("a", "b") == [b"1", b"2"]


def test_a_torn_transaction_stays_undone(own_redis: EmbeddedServer, tmp_path: Path) -> None:
    """The server itself would run its first part with the next transaction, one start later."""
    with connect(own_redis.url) as client:
        client.config_set("appendfsync", "always")  # else a write may be answered before it is in the file
        client.set("a", b"1")
        client.eval("redis.call('SET', KEYS[1], 'half'); redis.call('SET', KEYS[2], 'half')", 2, "b", "c")
        own_redis.kill()
        (file,) = (tmp_path / "redis" / "appendonlydir").glob("*.incr.aof")
        with file.open("r+b") as stream:
            stream.truncate(file.stat().st_size - 30)  # within the second SET
        own_redis.start()
        assert client.mget("a", "b", "c") == [b"1", None, None]
        client.eval("redis.call('SET', KEYS[1], '2'); redis.call('SET', KEYS[2], '2')", 2, "d", "e")
        own_redis.restart()
        assert client.mget("a", "b", "c", "d", "e") == [b"1", None, None, b"2", b"2"]


@pytest.mark.services
def test_ends_when_its_parent_is_killed() -> None:
    code = (
        "from stream_calib.transport.embedded_server import EmbeddedServer\n"
        "s = EmbeddedServer(); s.start(); print(s.pid, s.url, flush=True); input()"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid, url = parent.stdout.readline().split()
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert parent.stdin is not None
    parent.stdin.close()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while True:
        try:
            redis.Redis.from_url(url).ping()
        except redis.ConnectionError:
            break
        assert time.monotonic() < deadline, f"server {pid} outlived its parent"
    runtime = Path(url.removeprefix("unix://").split("?")[0]).parent
    while runtime.exists():
        assert time.monotonic() < deadline, f"{runtime} was left behind"


@pytest.mark.services
def test_a_server_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "redis-server"
    broken.write_text("#!/bin/sh\necho no such option >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(embedded_server, "find_server", lambda: broken)
    with pytest.raises(StreamCalibError, match="no such option"):
        EmbeddedServer().start()


def test_no_server_to_be_found_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(embedded_server, "find_spec", lambda name: None)
    with pytest.raises(StreamCalibError, match="install"):
        embedded_server.find_server()


def test_an_evicting_policy_is_refused(own_redis: EmbeddedServer) -> None:
    with connect(own_redis.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(ConfigurationError, match="allkeys-lru"):
            check_server(client)


def test_a_full_or_lost_server_is_the_given_error(own_redis: EmbeddedServer) -> None:
    script = LuaScript("stream_calib.transport", "embedded_append.lua", error_class=TransportError)
    with connect(RedisSection(url=own_redis.url, retries=0)) as client:
        client.config_set("maxmemory", "1")
        with pytest.raises(TransportError, match="refused while setting"), answering(TransportError, "setting"):
            client.set("a", b"1")
        own_redis.kill()
        with pytest.raises(TransportError, match="while running embedded_append"):
            script(client, ["a"], [b"1"])


def test_a_script_that_is_flushed_again_and_again_is_the_given_error(own_redis: EmbeddedServer) -> None:
    refused = pytest.raises(TransportError, match="refused while running")
    with connect(own_redis.url) as client, refused, answering(TransportError, "running it"):
        client.evalsha("0" * 40, 0)


def test_a_url_that_is_none_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="redis://"):
        connect("http://localhost")


def test_a_url_that_cannot_be_read_is_shown_without_its_password() -> None:
    address = "redis://:hunter2/0@localhost:6379"
    with pytest.raises(ConfigurationError) as caught:
        connect(address)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
