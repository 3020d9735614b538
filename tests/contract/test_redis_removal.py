"""Deleting what a model key has: all of it, nothing of others, on one server and on a cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stream_calib.config_connections import RedisSection
from stream_calib.errors import ConfigurationError, StateError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import ClusterClient, RedisClient
from stream_calib.redis_connection import connect
from stream_calib.windows.redis_removal import delete_state
from stream_calib.windows.redis_shards import RedisShards
from stream_calib.windows.redis_state import RedisState
from stream_calib.windows.state_store import Commit
from tests.windows.join import SETTINGS, Join, L, S, block, label
from workers.status_board import MemberStatus, StatusBoard

pytestmark = pytest.mark.services
GONE = ModelKey("m", "1.0")
LIKE_IT = [
    ModelKey("m", "1.0-b"),
    ModelKey("m", "1.00"),
    ModelKey("m", "1x0"),
    ModelKey("am", "1.0"),
    ModelKey("m", "1"),
]


@pytest.fixture(params=["one server", "cluster"])
def client(request: pytest.FixtureRequest) -> Iterator[RedisClient]:
    if request.param == "cluster":
        found = request.getfixturevalue("cluster_client")
        assert isinstance(found, ClusterClient)
        yield found
    else:
        with connect(request.getfixturevalue("redis_url")) as one:
            yield one


def fill(client: RedisClient, key: ModelKey) -> None:
    state = RedisState(client, key)
    blobs = {f"scored:{pane}": b"x" for pane in range(500)}
    state.commit(Commit(fields={"a": "1"}, appends={"decisions": [b"x"]}, blobs=blobs))
    state.put_signatures({1: ("a",), 2: ("b",)}, 0)
    state.acquire_lease("closer", "me", 60_000)
    StatusBoard(client, key).put(MemberStatus("monitor", "me", 0, {}))
    join = Join(RedisShards(client, key, 3, SETTINGS))
    join.write(S, *(block((f"id-{i}", i % 9)) for i in range(60)))
    join.write(L, *(label(f"id-{i}", 10, 1) for i in range(60)))


def keys_of(client: RedisClient, key: ModelKey) -> int:
    """All that begin with its tag, or with those of its shards."""
    return sum(1 for _ in client.scan_iter(match=f"sc:{{{key}}}*")) + sum(
        1 for _ in client.scan_iter(match=f"sc:{{{key}/*}}*")
    )


def test_all_of_the_key_goes_in_steps_and_nothing_of_others(client: RedisClient) -> None:
    for key in (GONE, *LIKE_IT):
        fill(client, key)
    before, others = keys_of(client, GONE), [keys_of(client, key) for key in LIKE_IT]
    assert before > 560
    steps: list[None] = []
    assert delete_state(client, GONE, lambda: steps.append(None)) == before
    assert len(steps) >= 3
    assert keys_of(client, GONE) == 0
    assert [keys_of(client, key) for key in LIKE_IT] == others
    assert delete_state(client, GONE, lambda: None) == 0


def test_what_a_step_finds_wrong_ends_it_and_it_can_be_taken_up_again(client: RedisClient) -> None:
    fill(client, GONE)
    before, steps = keys_of(client, GONE), 0

    def only_once() -> None:
        nonlocal steps
        steps += 1
        if steps > 1:
            raise StateError("it has come back")

    with pytest.raises(StateError, match="come back"):
        delete_state(client, GONE, only_once)
    assert 0 < (left := keys_of(client, GONE)) < before
    assert delete_state(client, GONE, lambda: None) == left


def test_a_user_that_may_not_look_for_names_is_told_so(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", "secret")
    section = RedisSection(
        url=redis_url, client={"username": "role"}, client_secrets={"password": "env:REDIS_PASSWORD"}
    )
    with connect(redis_url) as admin:
        admin.execute_command("ACL", "SETUSER", "role", "on", ">secret", "~sc:*", "+@all", "-scan")
        try:
            with connect(section) as client, pytest.raises(ConfigurationError, match="scan"):
                delete_state(client, GONE, lambda: None)
        finally:
            admin.execute_command("ACL", "DELUSER", "role")
