"""A role's loop: what it retries, what ends it."""

from __future__ import annotations

import threading

import pytest

from stream_calib.errors import (
    PositionLostError,
    StateError,
    StateUnavailableError,
    TopicRecreatedError,
    TransportError,
)
from workers.role import Role, RoleLoop


class Scripted(Role):
    """Raises or returns what it was given, step by step, then asks to stop."""

    name = "scripted"

    def __init__(self, stop: threading.Event, steps: list[Exception | bool]) -> None:
        self.stop, self.steps = stop, steps
        self.opened = self.closed = 0

    def open(self) -> None:
        self.opened += 1

    def step(self) -> bool:
        if not self.steps:
            self.stop.set()
            return False
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    def close(self) -> None:
        self.closed += 1


def run(steps: list[Exception | bool]) -> tuple[Scripted, RoleLoop]:
    stop = threading.Event()
    role = Scripted(stop, steps)
    loop = RoleLoop(role, stop, idle_wait_s=0.0)
    loop.start()
    loop.join(20)
    assert not loop.is_alive()
    return role, loop


@pytest.mark.parametrize("error", [StateUnavailableError("away"), TransportError("away")])
def test_a_server_that_is_away_is_tried_again(error: Exception) -> None:
    role, loop = run([True, error, True])
    assert loop.error is None
    assert role.steps == []
    assert role.closed == 1


def test_pauses_grow_also_where_every_other_step_goes_well(caplog: pytest.LogCaptureFixture) -> None:
    """As the monitor's do while the state is full: it takes up its partitions and cannot apply what it reads."""
    run([StateUnavailableError("full"), True] * 3)
    pauses = [record.getMessage() for record in caplog.records if "pauses for" in record.getMessage()]
    assert [text.split("pauses for ")[1].split(" s:")[0] for text in pauses] == ["0.05", "0.1", "0.2"]


@pytest.mark.parametrize("error", [StateError("damaged"), TopicRecreatedError("another"), PositionLostError("gone")])
def test_an_error_that_waiting_does_not_mend_ends_the_role_and_is_kept_for_the_process(error: Exception) -> None:
    role, loop = run([True, error, True])
    assert loop.error is error
    assert role.steps == [True]
    assert role.closed == 1
    assert role.stop.is_set()


def test_a_role_that_cannot_be_opened_is_opened_again() -> None:
    class OpensSecond(Scripted):
        def open(self) -> None:
            super().open()
            if self.opened == 1:
                raise StateUnavailableError("not yet")

    stop = threading.Event()
    role = OpensSecond(stop, [True])
    loop = RoleLoop(role, stop, idle_wait_s=0.0)
    loop.start()
    loop.join(20)
    assert (role.opened, role.steps, loop.error) == (2, [], None)
