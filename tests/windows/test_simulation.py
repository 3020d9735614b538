"""Random schedules with every kind of fault end as the offline oracle says, in memory and in Redis.

A quarter of the seeds have label partitions that fall silent, for good or for long, so that panes mature with a cut.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.windows.backends import Backend, ColumnBackend, MemoryBackend, RedisBackend, redis_backend
from tests.windows.expectation import check_world
from tests.windows.logs import generate
from tests.windows.simulation import KEEPING, LOSING, World

__all__ = ["redis_backend"]


def one(seed: int, backend: Backend, *, steps: int = 70) -> World:
    r = random.Random(seed)
    faults = r.choice([0.0, 0.01, 0.03, 0.08])
    logs = generate(
        seed,
        silent_for_good=seed % 8 == 0,
        wakes=seed % 8 == 4,
        grows=seed % 3 == 0,
        broker_clock=r.random() < 0.4,
        sample_rate=r.choice([1.0, 1.0, 0.6]),
    )
    # Labels of panes that matured without waiting for them are counted exactly as long as no shard loses writes.
    kinds = (*KEEPING, "state") if seed % 16 == 4 else (*KEEPING, *LOSING)
    world = World(seed, backend, logs, faults=faults, kinds=kinds, steps=steps)
    world.run()
    check_world(world)
    return world


@pytest.mark.parametrize("seeds", [range(i, i + 20) for i in range(0, 200, 20)], ids=str)
def test_memory(seeds: range) -> None:
    for seed in seeds:
        one(seed, MemoryBackend())


@pytest.mark.parametrize("seeds", [range(i, i + 5) for i in range(2_000, 2_010, 5)], ids=str)
def test_columns(seeds: range) -> None:
    for seed in seeds:
        one(seed, ColumnBackend())


@pytest.mark.parametrize("seeds", [range(i, i + 6) for i in range(1_000, 1_030, 6)], ids=str)
def test_redis(redis_backend: RedisBackend, seeds: range) -> None:
    for seed in seeds:
        redis_backend.client.flushdb()
        one(seed, redis_backend, steps=35)


def test_the_schedules_hold_what_they_promise() -> None:
    """Every kind of fault, label partitions left out, panes of every kind: else the tests above say little."""
    happened, cuts, ended = set[str](), 0, 0
    for seed in range(12):
        world = one(seed, MemoryBackend())
        happened |= set(world.happened)
        cuts += any(key for key in world.cuts())
        ended += world.logs.last_pane is None
    assert happened >= {"crash", "roll", "wipe", "state", "zombie", "closer", "second_closer", "settler", "deal"}
    assert 0 < cuts < 12
    assert 0 < ended < 12


def test_labels_come_for_panes_that_have_matured_without_them() -> None:
    """And are counted in the records of later ones."""
    found: Counter[str] = Counter()
    for seed in (68, 148, 196):
        world = one(seed, MemoryBackend())
        for record in world.records():
            found.update(record.counts)
    assert found["label_after_mature"] > 0
    assert found["label_unsampled"] > 0
