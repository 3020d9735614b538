"""The registry of model keys, over both stores."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from stream_calib.errors import StateError, TooManyModelsError
from stream_calib.events.contracts import ModelKey
from stream_calib.windows.model_registry import ModelRegistry, deployment_scope
from stream_calib.windows.redis_state import RedisState
from stream_calib.windows.state_store import Commit
from tests.windows.backends import Backend, RedisBackend, backend, redis_backend

__all__ = ["backend", "redis_backend"]


def test_keys_are_known_in_the_order_of_their_registration(backend: Backend) -> None:
    registry = ModelRegistry(backend.state(), limit=16)
    assert registry.known() == []
    assert registry.add(ModelKey("z", "1"))
    assert registry.add(ModelKey("a", "2"))
    assert registry.add(ModelKey("a", "1"))
    assert registry.known() == [ModelKey("z", "1"), ModelKey("a", "2"), ModelKey("a", "1")]


def test_a_known_key_is_registered_once_also_when_the_registry_is_full(backend: Backend) -> None:
    registry = ModelRegistry(backend.state(), limit=1)
    assert registry.add(ModelKey("m", "1"))
    assert not registry.add(ModelKey("m", "1"))
    assert registry.known() == [ModelKey("m", "1")]


def test_one_key_too_many_is_refused_and_named(backend: Backend) -> None:
    state = backend.state()
    registry = ModelRegistry(state, limit=2)
    registry.add(ModelKey("m", "1"))
    registry.add(ModelKey("m", "2"))
    with pytest.raises(TooManyModelsError, match=r"2 model keys .*m/3.*model\.max_keys"):
        registry.add(ModelKey("m", "3"))
    assert registry.known() == [ModelKey("m", "1"), ModelKey("m", "2")]
    assert ModelRegistry(state, limit=3).add(ModelKey("m", "3"))


def test_what_is_no_list_of_keys_is_a_plain_error(backend: Backend) -> None:
    state = backend.state()
    state.commit(Commit(fields={"models": '{"a": 1}'}))
    with pytest.raises(StateError, match="cannot be read"):
        ModelRegistry(state, limit=2).known()


@pytest.mark.services
def test_processes_that_register_at_once_lose_no_key(redis_backend: RedisBackend) -> None:
    scope = deployment_scope("several-at-once")
    keys = [ModelKey("m", str(i)) for i in range(20)]

    def register(key: ModelKey) -> bool:
        return ModelRegistry(RedisState(redis_backend.client, scope), limit=20).add(key)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(register, keys))
    assert sorted(ModelRegistry(RedisState(redis_backend.client, scope), limit=20).known()) == sorted(keys)
