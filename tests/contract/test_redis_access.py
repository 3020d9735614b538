"""Users with rights of their own, TLS, and what is found out about servers."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import trustme

from stream_calib.config_connections import ClientValue, RedisSection
from stream_calib.errors import ConfigurationError, StateError, StateUnavailableError
from stream_calib.redis_checks import ServerFinding, inspect_server
from stream_calib.redis_clients import ClusterClient, RedisClient
from stream_calib.redis_connection import answering, check_server, connect
from stream_calib.windows.redis_shards import RedisShards
from stream_calib.windows.redis_state import RedisState
from stream_calib.windows.state_store import SIGNATURE_EPOCH_MS, Commit
from tests.redis_servers import RedisClusterServers, RedisProcess, WatchedPair
from tests.tcp_proxy import TcpProxy
from tests.windows.backends import MODEL
from tests.windows.join import SETTINGS, Join, L, S, block, label
from workers.status_board import MemberStatus, StatusBoard

STATE_RIGHTS = (
    "~sc:*",
    "-@all",
    *("+eval", "+evalsha", "+hget", "+hset", "+hdel", "+hmget", "+hgetall", "+hkeys", "+hsetnx", "+hincrby", "+hlen"),
    *("+rpush", "+lrange", "+llen", "+ltrim", "+sadd", "+srem", "+smembers"),
    *("+get", "+set", "+mget", "+del", "+exists", "+type"),
)
"""All that the state needs. `+info` beside it lets this program look at the server."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisProcess]:
    """A server on a port of its own."""
    process = RedisProcess(tmp_path / "redis")
    process.start()
    try:
        yield process
    finally:
        process.kill()


def allow(server: RedisProcess, user: str, *rights: str, password: str = "hunter2") -> None:
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", user, "reset", "on", f">{password}", *rights)


def use_everything(client: RedisClient) -> None:
    """A call of every script and command that roles send to the state."""
    shards = RedisShards(client, MODEL, 3, SETTINGS)
    shards.attach()
    join = Join(shards)
    join.write(S, *(block((f"id-{i}", i)) for i in range(20)))
    join.write(L, *(label(f"id-{i}", i + 0.5) for i in range(20)))
    join.move_clocks(100)
    assert shards.counts_after(0)
    for pane in range(2):
        assert join.scored(pane)
        assert join.matured(pane)
        assert join.remove(pane) == [True] * 3
    shards.restart_wiped(0, shards.progress()[0].marks, 0)
    state = RedisState(client, MODEL)
    assert state.commit(Commit({}, {"a": "1"}, {"l": [b"x"]}, {"b": b"y"}))
    assert (state.read(("a",)), state.entries("l", 0), state.blobs(["b"])) == ({"a": "1"}, [b"x"], [b"y"])
    state.put_signatures({1: ("a",), 2: ("b",)}, 0)
    assert state.signatures([1, 2]) == {1: ("a",), 2: ("b",)}
    assert state.commit(Commit(deletes=["b"], trims={"l": 1}))
    assert (state.blobs(["b"]), state.length("l")) == ([None], 1)
    assert state.drop_signatures(SIGNATURE_EPOCH_MS) == 1
    assert state.acquire_lease("closer", "me", 1_000)
    state.release_lease("closer", "me")
    board = StatusBoard(client, MODEL)
    board.put(MemberStatus("monitor", "me", 0, {}))
    assert len(board.all(0)) == 1
    board.drop("monitor", "me")


# --- users


def test_a_user_with_few_rights_is_enough(
    server: RedisProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    allow(server, "calib", *STATE_RIGHTS, "+info")
    monkeypatch.setenv("REDIS_PASSWORD", "hunter2")
    section = RedisSection(
        url=server.url, client={"username": "calib"}, client_secrets={"password": "env:REDIS_PASSWORD"}
    )
    with caplog.at_level(logging.WARNING), connect(section) as client:
        use_everything(client)
    assert caplog.text == ""


def test_a_user_that_may_not_look_at_the_server_is_warned_of_and_works(
    server: RedisProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """As on managed services."""
    allow(server, "calib", *STATE_RIGHTS)
    with connect(RedisSection(url=f"redis://calib:hunter2@{server.address}")) as client:
        (finding,) = inspect_server(client)
        assert (finding.level, finding.subject) == ("warn", "access")
        assert "does not let this user run INFO" in caplog.text
        use_everything(client)


def test_config_is_never_needed(server: RedisProcess) -> None:
    allow(server, "calib", "~*", "+@all", "-config", "-@dangerous", "+info")
    with connect(f"redis://calib:hunter2@{server.address}") as client:
        assert {finding.subject for finding in inspect_server(client)} >= {"version", "eviction", "persistence"}
        use_everything(client)


@pytest.mark.parametrize("user", ["calib:wrong@", "other:hunter2@", ""])
def test_a_user_that_is_not_let_in_is_a_configuration_error(server: RedisProcess, user: str) -> None:
    allow(server, "calib", *STATE_RIGHTS)
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "default", "off")
    refused = pytest.raises(ConfigurationError, match="refused access while connecting")
    with refused as caught, answering(StateUnavailableError, "connecting"):
        connect(f"redis://{user}{server.address}")
    assert "hunter2" not in str(caught.value)


def test_a_right_that_is_missing_is_named(server: RedisProcess) -> None:
    allow(server, "calib", *STATE_RIGHTS, "-evalsha")
    refused = pytest.raises(ConfigurationError, match=r"refused access while running commit\.lua: .*evalsha")
    with connect(f"redis://calib:hunter2@{server.address}") as client, refused:
        RedisState(client, MODEL).commit(Commit({}, {"a": "1"}))


def test_what_to_allow_is_said(server: RedisProcess) -> None:
    allow(server, "calib", *STATE_RIGHTS, "resetkeys", "~other:*")
    refused = pytest.raises(ConfigurationError, match=r"refused access while .*sc:\*.*Rights")
    with connect(f"redis://calib:hunter2@{server.address}") as client, refused:
        RedisState(client, MODEL).read(("a",))


def test_a_database_that_the_server_does_not_have_is_a_configuration_error(server: RedisProcess) -> None:
    refused = pytest.raises(ConfigurationError, match="no database of that number")
    with refused, answering(StateUnavailableError, "connecting"):
        connect(f"redis://{server.address}/99")


def test_what_somebody_else_wrote_is_a_state_that_cannot_be_used(server: RedisProcess) -> None:
    with connect(f"redis://{server.address}") as client:
        state, shards = RedisState(client, MODEL), RedisShards(client, MODEL, 3, SETTINGS)
        client.hset(f"sc:{{{MODEL}}}:f", "a", b"\xff")
        with pytest.raises(StateError, match="the field a of m/1 is not UTF-8"):
            state.read(("a",))
        for key in (f"sc:{{{MODEL}}}:f", f"sc:{{{MODEL}/1}}:m"):
            client.delete(key)
            client.rpush(key, "x")
        for read in (lambda: state.read(("a",)), shards.progress):
            with pytest.raises(StateError, match="not ours") as caught:
                read()
            assert not isinstance(caught.value, StateUnavailableError)


def test_servers_and_sentinels_have_users_of_their_own(
    redis_sentinels: WatchedPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    for server in redis_sentinels.servers:
        allow(server, "calib", "~*", "+@all")
    for sentinel in redis_sentinels.sentinels:
        allow(sentinel, "watcher", "+@all", password="other")
        with sentinel.client() as client:
            client.execute_command("ACL", "SETUSER", "default", "off")
    monkeypatch.setenv("SENTINEL_PASSWORD", "other")
    section = RedisSection(
        url="redis://calib:hunter2@ignored",
        sentinels=redis_sentinels.addresses,
        client={"sentinel_username": "watcher"},
        client_secrets={"sentinel_password": "env:SENTINEL_PASSWORD"},
    )
    with connect(section) as client:
        assert client.execute_command("ACL", "WHOAMI") == b"calib"
        use_everything(client)


def test_a_clusters_user_may_see_the_topology_too(own_cluster: RedisClusterServers) -> None:
    for node in own_cluster.nodes:
        allow(node, "calib", *STATE_RIGHTS, "+info", "+cluster|slots", "+cluster|info", "+command")
    section = RedisSection(url=own_cluster.url.replace("://", "://calib:hunter2@"), cluster=True)
    with connect(section) as client:
        use_everything(client)
        subjects = [finding.subject for finding in inspect_server(client)]
        assert subjects.count("version") == 3
        assert "cluster" in subjects


# --- TLS


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls_port(authority: trustme.CA, server: RedisProcess) -> Iterator[int]:
    """A port on which the server is reached by TLS, with a certificate for localhost."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    with TcpProxy(server.port, context) as proxy:
        yield proxy.port


@pytest.fixture
def authority_file(authority: trustme.CA, tmp_path: Path) -> str:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return str(path)


def test_tls_is_spoken_and_the_certificate_checked(tls_port: int, authority_file: str) -> None:
    section = RedisSection(url=f"rediss://localhost:{tls_port}", client={"ssl_ca_certs": authority_file})
    with connect(section) as client:
        use_everything(client)


@pytest.mark.parametrize(("host", "given"), [("localhost", False), ("127.0.0.1", True)])
def test_a_certificate_that_does_not_hold_is_a_configuration_error(
    tls_port: int, authority_file: str, host: str, given: bool
) -> None:
    """Of an authority that is not known, or for another name."""
    client: dict[str, Any] = {"ssl_ca_certs": authority_file} if given else {}
    refused = pytest.raises(ConfigurationError, match="certificate was refused while connecting")
    with refused, answering(StateUnavailableError, "connecting"):
        connect(RedisSection(url=f"rediss://{host}:{tls_port}", client=client, retries=0))


def test_a_client_certificate_is_presented(
    authority: trustme.CA, authority_file: str, server: RedisProcess, tmp_path: Path
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    mine = authority.issue_cert("calib")
    certificate, key = tmp_path / "mine.pem", tmp_path / "mine.key"
    mine.cert_chain_pems[0].write_to_path(certificate)
    mine.private_key_pem.write_to_path(key)
    with TcpProxy(server.port, context) as proxy:
        trusting: dict[str, ClientValue] = {"ssl_ca_certs": authority_file}
        without = RedisSection(url=f"rediss://localhost:{proxy.port}", client=trusting, retries=0)
        with pytest.raises(StateUnavailableError), answering(StateUnavailableError, "connecting"):
            connect(without)
        files = {"ssl_certfile": str(certificate), "ssl_keyfile": str(key)}
        with connect(RedisSection(url=without.url, client={**trusting, **files})) as client:
            assert client.set("a", b"1")


def test_tls_to_a_server_without_it_is_said_plainly(server: RedisProcess) -> None:
    values = {"url": f"rediss://{server.address}", "retries": 0, "socket_timeout": "1s"}
    section = RedisSection.model_validate(values)
    refused = pytest.raises(StateUnavailableError, match="no answer from the Redis-compatible server while connecting")
    with refused, answering(StateUnavailableError, "connecting"):
        connect(section)


# --- findings


def finding(client: RedisClient, subject: str) -> ServerFinding:
    (found,) = [found for found in inspect_server(client) if found.subject == subject]
    return found


def test_a_sound_server_is_found_so(server: RedisProcess) -> None:
    with connect(server.url) as client:
        found = inspect_server(client)
        assert [(f.level, f.subject) for f in found] == [
            ("ok", "version"),
            ("ok", "eviction"),
            ("ok", "persistence"),
            ("ok", "memory"),
        ]
        assert all(not f.what_to_do and not f.server for f in found)
        assert "has appendonly on, and no replica" in str(finding(client, "persistence"))


def test_an_evicting_policy_is_found_and_refused(server: RedisProcess) -> None:
    """Field case 41."""
    with connect(server.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        assert finding(client, "eviction").level == "fail"
        with pytest.raises(ConfigurationError, match="maxmemory-policy allkeys-lru: it would drop state silently"):
            check_server(client)


def test_memory_that_runs_out_is_found(server: RedisProcess) -> None:
    with connect(server.url) as client:
        assert "the machine's memory" in finding(client, "memory").what
        client.config_set("maxmemory", 2 * client.info("memory")["used_memory"])
        assert (finding(client, "memory").level, "maxmemory" in finding(client, "memory").what) == ("ok", True)
        client.config_set("maxmemory", client.info("memory")["used_memory"] + 1000)
        assert finding(client, "memory").level == "warn"
        check_server(client)


def test_a_server_that_forgets_is_warned_of(server: RedisProcess, caplog: pytest.LogCaptureFixture) -> None:
    with connect(server.url) as client:
        client.config_set("appendonly", "no")
        assert finding(client, "persistence").level == "warn"
        check_server(client)
        assert "appendonly off, and no replica: a restart loses all state" in caplog.text


def test_every_primary_of_a_cluster_is_looked_at(own_cluster: RedisClusterServers) -> None:
    with connect(RedisSection(url=own_cluster.url, cluster=True)) as client:
        assert isinstance(client, ClusterClient)
        bad = client.primaries()[2]
        bad[1].config_set("maxmemory-policy", "allkeys-lru")
        found = [f for f in inspect_server(client) if f.level == "fail"]
        assert [(f.subject, f.server) for f in found] == [("eviction", bad[0])]
        with pytest.raises(ConfigurationError, match=bad[0]):
            check_server(client)


def test_a_clusters_node_and_a_single_server_are_told_apart(redis_cluster_url: str, server: RedisProcess) -> None:
    with pytest.raises(ConfigurationError, match=r"in cluster mode.*set redis\.cluster = true"):
        connect(redis_cluster_url)
    single = RedisSection(url=server.url, cluster=True)
    refused = pytest.raises(ConfigurationError, match="is a single one; set it to false")
    with refused, answering(StateUnavailableError, "connecting"):
        connect(single)


def test_what_answers_and_is_no_redis_is_said() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            refused = pytest.raises(ConfigurationError, match=r"is none, while connecting: .*; correct the address")
            with refused, answering(StateUnavailableError, "connecting"):
                connect(f"redis://127.0.0.1:{server.server_address[1]}/0")
        finally:
            server.shutdown()
