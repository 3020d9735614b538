"""The same interleavings as over the store in memory, over a real server."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import RedisClient
from stream_calib.windows.redis_state import RedisState
from tests.unit.snapshot.swap_machine import Interrupted, SwapMachine

pytestmark = pytest.mark.services


class InterruptedRedis(Interrupted, RedisState):
    pass


def test_any_interleaving_on_a_server_yields_a_linear_history(redis_client: RedisClient) -> None:
    numbers = count()

    class OnRedis(SwapMachine):
        def make_state(self) -> Any:
            return InterruptedRedis(redis_client, ModelKey("swapped", str(next(numbers))))

    run_state_machine_as_test(OnRedis, settings=settings(max_examples=6, stateful_step_count=30, deadline=None))
