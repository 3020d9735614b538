"""Random schedules of monitors: they come, go and die, partitions and model keys are added, shards lose writes. In the
end each key has what the oracle says."""

from __future__ import annotations

import random

import pytest

from stream_calib.events.contracts import ModelKey
from tests.windows.backends import RedisBackend
from tests.windows.monitors import A, B, Monitored, monitored

pytestmark = pytest.mark.services
C = ModelKey("n", "1")
STEP_S, STEPS = 15, 10


@pytest.mark.parametrize("seed", range(12))
def test_random_schedule(redis_url: str, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    r = random.Random(seed)
    with monitored(redis_url, monkeypatch, partitions=r.choice([1, 2])) as m:
        keys = [A]
        m.clocks(0)
        m.start()
        for n in range(STEPS):
            m.traffic(keys, n * STEP_S, (n + 1) * STEP_S, seed=100 * seed + n)
            for _ in range(r.choice([0, 1, 5, 20])):
                if m.monitors:
                    r.choice(m.monitors).step()
            if n < STEPS - 1:
                happens(m, r, keys)
        if not m.monitors:
            m.start()
        end = (STEPS * STEP_S) // 10 * 10
        m.clocks(end + 60)
        m.until_applied(*keys)
        m.until_matured(end, *keys)
        for key in keys:
            since = None if key == A else m.cursor(key, "first_pane") + 1
            assert m.check(key, since=since) > 0


def happens(m: Monitored, r: random.Random, keys: list[ModelKey]) -> None:
    what = r.choice(["start", "stop", "die", "grow", "key", "wipe", "nothing"])
    if what == "start" and len(m.monitors) < 3:
        m.start()
    elif what == "stop" and m.monitors:
        m.stop(r.choice(m.monitors))
    elif what == "die" and m.monitors:
        m.kill(r.choice(m.monitors))
    elif what == "grow" and m.log.partitions("blocks") < 4:
        for topic in r.choice([("blocks",), ("labels",), ("blocks", "labels")]):
            m.grow(topic, m.log.partitions(topic) + 1)
    elif what == "key" and len(keys) < 3:
        keys.append([B, C][len(keys) - 1])
    elif what == "wipe":
        key = r.choice(keys)
        if key in m.known():
            wipe(m, key, r.randrange(2))


def wipe(m: Monitored, key: ModelKey, shard: int) -> None:
    """The shard loses all that it has."""
    RedisBackend(m.client).put_shard(m.state(key).shards, shard, None)
