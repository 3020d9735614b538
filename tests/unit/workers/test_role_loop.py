"""A role's loop: what it retries, what ends it."""

from __future__ import annotations

import re
import threading

import pytest

from stream_calib.errors import (
    ConfigurationError,
    PositionLostError,
    StateError,
    StateUnavailableError,
    TopicRecreatedError,
    TransportError,
)
from workers.role import Pauses, Role, RoleLoop


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


def test_a_loop_says_what_it_waits_for_until_its_steps_go_well() -> None:
    seen: list[str | None] = []

    class Watching(Scripted):
        def step(self) -> bool:
            seen.append(loop.not_ready)
            return super().step()

    stop = threading.Event()
    loop = RoleLoop(Watching(stop, [True, TransportError("log away"), True]), stop, idle_wait_s=0.0)
    loop.start()
    loop.join(20)
    assert seen == ["starts", None, "waits: log away", None]
    assert loop.not_ready == "ends"


def test_a_role_that_works_may_still_not_be_ready() -> None:
    class Waiting(Scripted):
        def ready(self) -> str | None:
            reasons.append(loop.not_ready)
            return "has no snapshot"

    stop, reasons = threading.Event(), list[str | None]()
    loop = RoleLoop(Waiting(stop, [True]), stop, idle_wait_s=0.0)
    loop.start()
    loop.join(20)
    assert reasons == ["starts", "has no snapshot"]


class Now:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


def test_pauses_grow_also_where_every_other_step_goes_well() -> None:
    """As the monitor's do while the state is full: it takes up its partitions and cannot apply what it reads."""
    now = Now()
    pauses = Pauses("monitor", now)
    found = []
    for _ in range(9):
        found.append(pauses.next_s(StateUnavailableError("full")))
        now.s += found[-1]
        pauses.ended()
        pauses.went_well()
    assert found == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])


def test_pauses_begin_small_again_once_steps_have_gone_well_for_a_while() -> None:
    now = Now()
    pauses = Pauses("monitor", now)
    for _ in range(3):
        pauses.next_s(TransportError("away"))
        pauses.ended()
    now.s += 1.0
    pauses.went_well()
    assert pauses.next_s(TransportError("away")) == pytest.approx(0.05)


def test_a_server_that_is_away_for_hours_is_told_of_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = Now()
    pauses = Pauses("calibrate", now)
    with caplog.at_level("INFO"):
        while now.s < 100 + 3 * 3600:
            now.s += pauses.next_s(TransportError("no broker"))
            pauses.ended()
        now.s += 10
        pauses.went_well()
        pauses.went_well()
    told = [record.getMessage() for record in caplog.records]
    assert told[0] == "calibrate pauses for 0.05 s: no broker"
    assert re.fullmatch(r"calibrate pauses still, after 6\d s and \d+ tries: no broker", told[1])
    assert 170 <= len(told) <= 182
    assert re.fullmatch(r"calibrate goes on, after 108\d\d s and 2\d{3} tries", told[-1])
    assert sum("goes on" in text for text in told) == 1


def test_another_server_that_is_away_is_told_of_at_once(caplog: pytest.LogCaptureFixture) -> None:
    pauses = Pauses("monitor", Now())
    for error in (TransportError("log"), StateUnavailableError("state"), TransportError("log")):
        pauses.next_s(error)
    assert [record.getMessage().split(": ")[1] for record in caplog.records] == ["log", "state"]


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


def test_an_end_that_is_refused_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    class Refused(Scripted):
        def close(self) -> None:
            raise ConfigurationError("no right to drop a status")

    stop = threading.Event()
    loop = RoleLoop(Refused(stop, []), stop, idle_wait_s=0.0)
    loop.start()
    loop.join(20)
    assert "scripted ends without giving up what it held: no right to drop a status" in caplog.text
    assert "Traceback" not in caplog.text
