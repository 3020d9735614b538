"""Under an LRU policy a full server removed queues and statistics, and nobody was told: a window began again at zero,
and raw scores were given out for calibrated ones.
"""

from __future__ import annotations

import numpy as np
import pytest
import redis

from stream_calib.errors import ConfigurationError, SnapshotError, StateError, StateUnavailableError
from stream_calib.redis_clients import RedisClient
from stream_calib.redis_connection import check_server, connect
from stream_calib.snapshot.follower import SnapshotFollower
from stream_calib.transport.embedded_server import EmbeddedServer
from stream_calib.transport.port import TopicPartition
from stream_calib.windows.redis_shards import RedisShards
from stream_calib.windows.redis_state import RedisState
from tests.cases.joined import joined, label, score
from tests.integration.live_state import ATTRIBUTES, KEY, publish
from tests.windows.backends import MODEL
from tests.windows.join import SETTINGS, Join, L, S, block
from tests.windows.join import clock as clock_record
from tests.windows.join import label as join_label
from tests.windows.monitors import A

pytestmark = pytest.mark.services
POLICIES = ["allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-ttl", "volatile-random"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_that_evicts_is_refused_at_start(redis_client: redis.Redis, redis_url: str, policy: str) -> None:
    redis_client.config_set("maxmemory-policy", policy)
    try:
        with pytest.raises(ConfigurationError, match=f"maxmemory-policy {policy}: it would drop state silently"):
            check_server(redis_client)
        with pytest.raises(ConfigurationError, match="set maxmemory-policy noeviction"), connect(redis_url):
            pass
    finally:
        redis_client.config_set("maxmemory-policy", "noeviction")
    check_server(redis_client)


def follower_of(client: RedisClient, clock: list[int]) -> SnapshotFollower:
    state = RedisState(client, KEY)
    return SnapshotFollower(state, ATTRIBUTES, poll_ms=1, max_staleness_ms=10**9, clock_ms=lambda: clock[0])


@pytest.mark.parametrize("lost", ["blob", "pointer", "both"])
def test_without_its_snapshot_in_the_store_a_process_serves_the_last_good_one(
    redis_client: redis.Redis, lost: str
) -> None:
    version, clock = publish(redis_client), [0]
    follower = follower_of(redis_client, clock)
    good = follower.current()
    assert good is not None
    tag = RedisState(redis_client, KEY)._tag
    if lost in ("blob", "both"):
        assert redis_client.delete(f"{tag}b:snapshot:{version}") == 1
    if lost in ("pointer", "both"):
        assert redis_client.delete(f"{tag}f") == 1
    for _ in range(100):
        clock[0] += 10
        served = follower.current()
        assert served is not None
        assert served.version == version
        raw = np.array([0.5])
        again = served.apply(raw, np.array([0]), [("eu", "phone")], np.array([0]))
        assert again == good.apply(raw, np.array([0]), [("eu", "phone")], np.array([0]))
        assert again != raw
    assert follower.behind == (lost != "blob")
    assert redis_client.exists(f"{tag}b:snapshot:{version}"), "what is served is put back"


def test_a_process_that_starts_without_the_blob_refuses_and_never_serves_raw_scores(redis_client: redis.Redis) -> None:
    version = publish(redis_client)
    redis_client.delete(f"{RedisState(redis_client, KEY)._tag}b:snapshot:{version}")
    with pytest.raises(SnapshotError, match=version):
        follower_of(redis_client, [0]).current()


@pytest.mark.parametrize("lost", ["rows", "counters"])
def test_a_window_that_lost_a_key_is_an_error_and_not_a_smaller_window(redis_client: redis.Redis, lost: str) -> None:
    store = RedisShards(redis_client, MODEL, 1, SETTINGS)
    join = Join(store)
    join.write(S, *(block((f"id-{i}", i)) for i in range(20)))
    join.write(L, *(join_label(f"id-{i}", i + 1, i % 2) for i in range(20)))
    for key in (S, L):
        join.write(key, clock_record(100))
    assert join.sums(0) == (10, 5, 0)
    pattern = {"rows": b"*}:p*0", "counters": b"*}:c"}[lost]
    (found,) = redis_client.scan_iter(match=pattern, count=1_000)
    redis_client.delete(found)
    with pytest.raises(StateError, match=r"holds \d+ of the \d+ scores that it has counted.*maxmemory-policy"):
        join.matured(0)


def test_a_shard_that_lost_its_marks_is_not_read_as_an_empty_one(redis_client: redis.Redis) -> None:
    store = RedisShards(redis_client, MODEL, 1, SETTINGS)
    join = Join(store)
    join.write(S, block(("a", 1)), clock_record(100))
    join.write(L, clock_record(100))
    assert join.sums(0) == (0, 0, 1)
    (marks,) = redis_client.scan_iter(match=b"*}:m", count=1_000)
    redis_client.delete(marks)
    assert join.try_matured(0) is None


def test_where_nothing_is_evicted_a_full_memory_stops_the_positions_and_loses_nothing(
    own_redis: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with joined(own_redis.url, monkeypatch) as j, redis.Redis.from_url(own_redis.url) as client:
        m = j.monitors
        j.clocks(0)
        m.start()
        m.until_applied(A)
        client.config_set("maxmemory", client.info("memory")["used_memory"] // 2)
        j.scores(*(score(f"id-{i}", 3 + i % 3, i / 100) for i in range(100)))
        j.labels(*(label(f"id-{i}", 9, i % 2) for i in range(100)))
        with pytest.raises(StateUnavailableError):
            any(m.monitors[0].step() is None for _ in range(20))
        blocks = TopicPartition("blocks", 0)
        assert m.positions(A, blocks) == {1}
        assert (m.log.group_positions("monitor", "blocks") or {}).get(0, 0) <= 1
        client.config_set("maxmemory", 0)
        j.matured(3)
        found = j.pane(3)
        assert (found.scored, found.labelled, found.positives) == (100, 100, 50)
