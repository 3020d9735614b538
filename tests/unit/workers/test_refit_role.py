"""The refits of one model key around the refitter: the lease."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from stream_calib.config import Config
from stream_calib.errors import StateUnavailableError
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.changes import REFIT_LEASE
from stream_calib.windows.memory_state import MemoryState
from tests.unit.refit.world import World, config
from workers import refit
from workers.deployment import connect_state, open_registry, state_of
from workers.refit import ModelRefit, Refit

_PATIENCE_S = 20.0


class Renewals(MemoryState):
    """Fails as it is told, and says when the lease was renewed once more after that."""

    def __init__(self, failures: Iterable[StateUnavailableError]) -> None:
        super().__init__()
        self.failures = list(failures)
        self.renewed = threading.Event()

    def acquire_lease(self, name: str, owner: str, ttl_ms: int) -> str | None:
        if threading.current_thread() is threading.main_thread():
            return super().acquire_lease(name, owner, ttl_ms)
        if self.failures:
            raise self.failures.pop()
        self.renewed.set()
        return super().acquire_lease(name, owner, ttl_ms)


KEY = ModelKey("m", "1")


def refit_over(state: MemoryState, run_once: Any, *, open_request: bool, keep_up: Any = None) -> ModelRefit:
    log = SimpleNamespace(open_request="a request" if open_request else None)
    snapshots, refitter = SimpleNamespace(log=lambda: log), SimpleNamespace(run_once=run_once, keep_up=keep_up)
    return ModelRefit(KEY, state, snapshots, refitter, "member")  # type: ignore[arg-type]  # stand-ins


@pytest.mark.parametrize("failures", [[], [StateUnavailableError("away"), StateUnavailableError("away")]])
def test_the_lease_is_renewed_while_a_refit_is_at_work_whatever_fails_meanwhile(
    failures: list[StateUnavailableError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refit, "_RENEW_AT_WORK_S", 0.0)
    state = Renewals(failures)
    tokens = []

    def work(token: str) -> None:
        assert state.renewed.wait(_PATIENCE_S)
        tokens.append(token)

    refit_over(state, work, open_request=True).answer(1_000)
    assert tokens == ["1"]
    assert not [t for t in threading.enumerate() if t.name == "refit lease"]


def test_an_error_of_the_refit_ends_the_renewals_and_is_passed_on() -> None:
    def fails(token: str) -> None:
        raise StateUnavailableError("away")

    with pytest.raises(StateUnavailableError):
        refit_over(MemoryState(), fails, open_request=True).answer(1_000)
    assert not [t for t in threading.enumerate() if t.name == "refit lease"]


def test_without_a_request_the_checkpoint_is_looked_at_once_a_second() -> None:
    def never(token: str) -> None:
        raise AssertionError("there was no request")

    state, looked = MemoryState(), list[int]()
    now = 0
    made = refit_over(state, never, open_request=False, keep_up=lambda: looked.append(now))
    for now in (1_000, 1_500, 1_999, 2_000, 2_001, 3_000):
        assert made.answer(now) is None
    assert looked == [1_000, 2_000, 3_000]
    state = MemoryState()
    state.acquire_lease(REFIT_LEASE, "another", 10_000)
    assert refit_over(state, never, open_request=False, keep_up=never).answer(1_000) is None


def test_memory_is_given_back_after_a_refit_and_after_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits come and go between cells of panes that stay; else what is free between these adds up from fit to fit."""
    done = list[str]()
    monkeypatch.setattr(refit, "give_back_freed_memory", lambda: done.append("given back"))
    refit_over(MemoryState(), lambda token: done.append("refit"), open_request=True).answer(1_000)
    assert done == ["refit", "given back"]
    moved = iter([False, True])

    def keep_up() -> bool:
        done.append("looked")
        return next(moved)

    idle = refit_over(MemoryState(), None, open_request=False, keep_up=keep_up)
    idle.answer(1_000)
    assert done[2:] == ["looked"]
    idle.answer(2_000)
    assert done[3:] == ["looked", "given back"]


def test_a_worker_that_has_not_got_the_lease_does_not_work() -> None:
    world = World(config())  # whose worker holds it
    while world.store.log().open_request is None:
        world.run(1, refit=False)
    refit = refit_over(world.state, lambda token: pytest.fail("not its turn"), open_request=True)
    assert refit.answer(1_000) is None
    assert not refit.active


@pytest.mark.services
def test_a_retired_key_is_left(redis_url: str) -> None:
    now_ms = 1_000_000
    settings = Config.model_validate(
        {"model": {"name_path": "m"}, "redis": {"url": redis_url}, "windows": {"horizon": "2h"}}
    )
    with closing(connect_state(settings)) as client, closing(Refit(settings, lambda: now_ms)) as role:
        registry, of_key = open_registry(client, settings), state_of(client, settings, KEY)
        registry.add(KEY)
        role.open()
        role.step()
        assert [status.role for status in of_key.board.all(now_ms)] == ["refit"]
        assert of_key.store.acquire_lease(REFIT_LEASE, "another", 1_000) is None
        registry.retire(KEY, {}, now_ms)
        now_ms += 1_000
        role.step()
        assert of_key.board.all(now_ms) == []
        assert of_key.store.acquire_lease(REFIT_LEASE, "another", 1_000) is not None
        of_key.store.release_lease(REFIT_LEASE, "another")
        registry.add(KEY)
        now_ms += 1_000
        role.step()
        assert [status.role for status in of_key.board.all(now_ms)] == ["refit"]
