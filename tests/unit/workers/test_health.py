"""Liveness, readiness and the watchdog, over loops that hang on purpose."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

import pytest

from workers.health import Health, Watchdog, stack_of
from workers.role import Role, RoleLoop


class Hanging(Role):
    """Its step returns when it is let go."""

    name = "hanging"

    def __init__(self) -> None:
        self.in_step, self.go = threading.Event(), threading.Event()

    def open(self) -> None:
        pass

    def step(self) -> bool:
        self.in_step.set()
        self.go.wait(20)
        return False

    def close(self) -> None:
        pass


class Slow(Hanging):
    name = "slow"
    longest_step_s: ClassVar[float] = 600.0


@contextmanager
def hanging(role: Hanging) -> Iterator[tuple[RoleLoop, threading.Event]]:
    stop = threading.Event()
    loop = RoleLoop(role, stop, idle_wait_s=0.001)
    loop.start()
    try:
        assert role.in_step.wait(10)
        yield loop, stop
    finally:
        stop.set()
        role.go.set()
        loop.join(10)


def test_a_role_that_does_not_come_round_is_not_alive() -> None:
    with hanging(Hanging()) as (loop, stop):
        now = [loop.turned_at_s + 60.0]
        health = Health([loop], stop, 60.0, lambda: now[0])
        assert health.not_alive() == {}
        now[0] += 15.0
        assert health.not_alive() == {"hanging": "has not come round for 75 s"}
        assert health.not_ready() == {"hanging": "has not come round for 75 s"}


def test_a_role_of_long_steps_may_take_longer() -> None:
    with hanging(Slow()) as (loop, stop):
        now = [loop.turned_at_s + 599.0]
        health = Health([loop], stop, 60.0, lambda: now[0])
        assert health.not_alive() == {}
        now[0] += 2.0
        assert list(health.not_alive()) == ["slow"]


def test_a_process_that_ends_is_alive_and_not_ready() -> None:
    with hanging(Hanging()) as (loop, stop):
        stop.set()
        health = Health([loop], stop, 60.0)
        assert health.not_ready() == {"hanging": "ends"}
        assert health.not_alive() == {}


def test_roles_that_are_not_started_yet_are_alive_and_not_ready() -> None:
    loop = RoleLoop(Hanging(), threading.Event(), 0.0)
    health = Health([loop], threading.Event(), 1.0, lambda: loop.turned_at_s + 100.0)
    assert health.not_alive() == {}
    assert health.not_ready() == {"hanging": "starts"}


def test_the_time_before_a_loop_was_started_does_not_count() -> None:
    role, stop = Hanging(), threading.Event()
    loop = RoleLoop(role, stop, 0.0)
    loop.turned_at_s -= 100.0
    health = Health([loop], stop, 50.0)
    loop.start()
    try:
        assert role.in_step.wait(10)
        assert health.not_alive() == {}
    finally:
        stop.set()
        role.go.set()
        loop.join(10)


def test_the_watchdog_says_once_where_a_role_hangs_and_that_it_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    role, done = Hanging(), threading.Event()

    def told(text: str) -> list[str]:
        return [record.getMessage() for record in caplog.records if text in record.getMessage()]

    with hanging(role) as (loop, stop), caplog.at_level("WARNING"):
        looked = threading.Semaphore(0)

        class Counting(Health):
            def hung(self) -> dict[RoleLoop, float]:
                looked.release()
                return super().hung()

        watchdog = Watchdog(Counting([loop], stop, 0.05), done, look_every_s=0.02)
        watchdog.start()
        until(lambda: told("hangs"))
        for _ in range(10):
            assert looked.acquire(timeout=10)
        assert len(told("hangs")) == 1
        assert "test_health.py" in told("hangs")[0]
        assert " step" in told("hangs")[0]
        assert "\n" not in told("hangs")[0]
        role.go.set()
        until(lambda: told("goes on"))
        done.set()
        watchdog.join(10)
        assert not watchdog.is_alive()


def test_the_stack_of_a_thread_that_has_ended() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    assert stack_of(thread) == "(it has ended)"


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)
