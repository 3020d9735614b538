"""Publications and acts of people wait for a replica, where there is one, and stand where it does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from prometheus_client import REGISTRY

from stream_calib.config_connections import RedisSection
from stream_calib.errors import ConfigurationError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import RedisClient
from stream_calib.redis_connection import connect
from stream_calib.snapshot.store import SnapshotStore
from stream_calib.windows.redis_state import RedisState
from stream_calib.windows.state_store import Commit
from tests.redis_servers import RedisProcess, wait_until

pytestmark = pytest.mark.services

KEY = ModelKey("m", "1")


class Pair:
    """A primary and its replica, with a state on them."""

    def __init__(self, directory: Path, *options: str) -> None:
        """`options`: of the primary."""
        self.primary = RedisProcess(directory / "0", options)
        self.replica = RedisProcess(directory / "1", ("--replicaof", "127.0.0.1", str(self.primary.port)))
        self.primary.start()
        self.replica.start()
        self.client: RedisClient = connect(self.primary.url)
        self.state = RedisState(self.client, KEY)
        self.wait_until_heard()
        self.state.commit(Commit(fields={"first_pane": "5"}))

    def close(self) -> None:
        self.client.close()
        self.replica.kill()
        self.primary.kill()

    def wait_until_heard(self) -> None:
        """Until the replica has told the primary just now that it follows: WAIT counts none before."""

        def heard() -> bool:
            replica = client.info("replication").get("slave0", {})
            return bool(replica.get("state") == "online" and replica["lag"] <= 1)

        with self.primary.client() as client:
            wait_until(heard, "the primary hears from the replica")

    def manual_requests(self) -> list[str]:
        entries = SnapshotStore(self.state, KEY, "g", 1_000, lambda: 0).log().manual_at(5)
        return [entry.reason for entry in entries]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.close()


def ask(state: RedisState, reason: str) -> None:
    SnapshotStore(state, KEY, "g", 1_000, lambda: 77).request_manual("ann", reason)


def unreplicated() -> float:
    return REGISTRY.get_sample_value("stream_calib_unreplicated_changes_total", {"model": "m/1"}) or 0.0


def test_what_is_answered_is_there_after_a_failover(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_calib.snapshot.changes._REPLICA_WITHIN_MS", 60_000)
    client = connect(RedisSection.model_validate({"url": pair.primary.url, "socket_timeout": "2m"}))
    before = unreplicated()
    asked = Thread(target=ask, args=(RedisState(client, KEY), "new fares"))
    pair.replica.pause()
    try:
        asked.start()
        with pair.primary.client() as watching:
            wait_until(lambda: any(one["cmd"] == "wait" for one in watching.client_list()), "it waits")
        assert asked.is_alive()
    finally:
        pair.replica.resume()
    asked.join()
    client.close()
    pair.primary.kill()  # at once: what the replica has not got by now is gone
    with pair.replica.client() as replica:
        replica.replicaof("NO", "ONE")
        assert SnapshotStore(RedisState(replica, KEY), KEY, "g", 1_000, lambda: 0).log().manual_at(5)[0].actor == "ann"
    assert unreplicated() == before


def test_a_replica_that_does_not_answer_is_said_and_the_change_stands(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    before = unreplicated()
    pair.replica.pause()
    try:
        ask(pair.state, "new fares")
    finally:
        pair.replica.resume()
    assert pair.manual_requests() == ["new fares"]
    assert unreplicated() == before + 1
    assert "no replica had the last entry of the decision log of m/1 within 1 s" in caplog.text
    pair.wait_until_heard()
    ask(pair.state, "again")
    assert pair.manual_requests() == ["new fares", "again"]
    assert unreplicated() == before + 1


def test_nobody_waits_without_a_replica_or_without_the_right_to(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    assert pair.state.wait_for_replica(60_000) is True
    with pair.primary.client() as client:
        for command in ("wait", "info"):
            caplog.clear()
            client.execute_command("ACL", "SETUSER", "default", f"-{command}")
            assert pair.state.wait_for_replica(1_000) is None
            assert "nobody waits for the replica" in caplog.text
            client.execute_command("ACL", "SETUSER", "default", f"+{command}")
    pair.replica.kill()
    with pair.primary.client() as client:
        wait_until(lambda: client.info("replication")["connected_slaves"] == 0, "the replica is gone")
    assert pair.state.wait_for_replica(1_000) is None


def test_what_cannot_be_waited_for_stands(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the log, whatever fails behind that: nobody must be told that it is not."""

    def refused(within_ms: int) -> bool | None:
        raise ConfigurationError("the password was changed")

    before = unreplicated()
    monkeypatch.setattr(pair.state, "wait_for_replica", refused)
    ask(pair.state, "new fares")
    assert pair.manual_requests() == ["new fares"]
    assert unreplicated() == before + 1


def test_a_server_without_the_command_is_not_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = Pair(tmp_path, "--rename-command", "WAIT", "")
    try:
        assert made.state.wait_for_replica(1_000) is None
        assert "unknown command" in caplog.text
        ask(made.state, "new fares")
        assert made.manual_requests() == ["new fares"]
    finally:
        made.close()


def test_a_connection_is_not_given_up_for_a_slow_replica(pair: Pair) -> None:
    client = connect(RedisSection.model_validate({"url": pair.primary.url, "socket_timeout": "1s"}))
    pair.replica.pause()
    try:
        assert RedisState(client, KEY).wait_for_replica(60_000) is False
    finally:
        pair.replica.resume()
        client.close()
