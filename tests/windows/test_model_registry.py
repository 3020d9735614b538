"""The registry of model keys, over both stores."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from stream_calib.errors import StateError, TooManyModelsError
from stream_calib.events.contracts import ModelKey
from stream_calib.windows.model_registry import ModelRegistry, Retirement, deployment_scope
from stream_calib.windows.redis_state import RedisState
from stream_calib.windows.shard_store import Mark
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


A, B = ModelKey("m", "1"), ModelKey("m", "2")


def test_a_retired_key_makes_room_and_may_come_back(backend: Backend) -> None:
    registry = ModelRegistry(backend.state(), limit=1)
    assert not registry.retire(A, {}, 5)
    registry.add(A)
    assert registry.retire(A, {"s:t:0": Mark(7, None)}, 5)
    assert not registry.retire(A, {}, 6)
    found = registry.look()
    assert (found.known, found.gone(A), found.gone(B)) == ([], True, False)
    assert found.retired[A] == Retirement(5, {"s:t:0": Mark(7, None)})
    assert registry.add(B)
    with pytest.raises(TooManyModelsError, match="retire one"):
        registry.add(A)
    registry.retire(B, {}, 6)
    assert registry.add(A)
    assert not registry.look().gone(A)
    assert registry.known() == [A]


def test_only_what_was_written_before_a_key_was_retired_is_past(backend: Backend) -> None:
    registry = ModelRegistry(backend.state(), limit=2)
    registry.add(A)
    assert not registry.look().is_past(A, "s:t:0", 0)
    registry.retire(A, {"s:t:0": Mark(7, None)}, 5)
    found = registry.look()
    assert found.is_past(A, "s:t:0", 6)
    assert not found.is_past(A, "s:t:0", 7)
    assert not found.is_past(A, "s:t:1", 0), "a partition that was added since"
    assert not found.is_past(B, "s:t:0", 6)
    registry.add(A)
    assert not registry.look().is_past(A, "s:t:0", 6)


def test_where_a_key_that_comes_back_reads_on_is_decided_once(backend: Backend) -> None:
    registry = ModelRegistry(backend.state(), limit=2)
    registry.add(A)
    assert registry.returning(A, lambda: {}) is None
    registry.retire(A, {"s:t:0": Mark(7, None), "s:t:1": Mark(9, None)}, 5)
    registry.add(A)
    first = registry.returning(A, lambda: {"s:t:0": Mark(8, 100), "s:t:1": Mark(3, 90), "s:t:2": Mark(1, 80)})
    assert first is not None
    assert first.marks == {"s:t:0": Mark(8, 100), "s:t:1": Mark(9, None), "s:t:2": Mark(1, 80)}
    assert registry.returning(A, lambda: {"s:t:0": Mark(50, 200)}) == first, "after a crash too"
    registry.returned(A)
    assert registry.returning(A, lambda: {}) is None
    assert registry.look().retired == {}


def test_a_key_that_was_retired_again_is_not_taken_for_one_that_is_back(backend: Backend) -> None:
    registry = ModelRegistry(backend.state(), limit=2)
    for time_ms in (5, 6):
        registry.add(A)
        registry.returning(A, lambda: {})
        registry.retire(A, {"s:t:0": Mark(time_ms, None)}, time_ms)
        registry.returned(A)
        assert registry.look().retired == {A: Retirement(time_ms, {"s:t:0": Mark(time_ms, None)})}


def test_a_retirement_is_dropped_with_its_state_and_its_last_record(backend: Backend) -> None:
    registry = ModelRegistry(backend.state(), limit=2)
    for key in (A, B):
        registry.add(key)
        registry.retire(key, {"s:t:0": Mark(7, None), "l:t:0": Mark(90, None)}, 5)
    registry.note_state_deleted(A)
    registry.forget_retired({"s:t:0": 6})
    assert set(registry.look().retired) == {A, B}
    registry.forget_retired({"s:t:0": 7})
    assert set(registry.look().retired) == {B}, "the state of the other is kept"


def test_a_registry_of_before_there_were_retirements_is_read(backend: Backend) -> None:
    state = backend.state()
    state.commit(Commit(fields={"models": '[["m","1"]]'}))
    registry = ModelRegistry(state, limit=2)
    assert registry.known() == [A]
    assert registry.retire(A, {}, 5)
    assert registry.look().gone(A)
