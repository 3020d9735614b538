"""Random schedules with every kind of fault end as the offline oracle says, in memory and in Redis."""

from __future__ import annotations

import random

import pytest

from tests.windows.backends import Backend, MemoryBackend, RedisBackend, backend, redis_backend
from tests.windows.expectation import check_world
from tests.windows.logs import generate
from tests.windows.simulation import World

__all__ = ["backend", "redis_backend"]


def one(seed: int, made: Backend, *, silent_for_good: bool) -> World:
    faults = random.Random(seed).choice([0.0, 0.01, 0.03, 0.08])
    world = World(seed, made, generate(seed, silent_for_good=silent_for_good), faults=faults)
    world.run()
    check_world(world)
    return world


@pytest.mark.parametrize("seeds", [range(i, i + 25) for i in range(0, 200, 25)], ids=str)
def test_memory(seeds: range) -> None:
    for seed in seeds:
        one(seed, MemoryBackend(), silent_for_good=seed % 4 == 0)
