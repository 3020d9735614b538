"""The calibrate role around its transform: clock records, statuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from stream_calib.errors import StateUnavailableError
from stream_calib.events.control import is_control
from stream_calib.transport.memory import MemoryLog
from stream_calib.transport.port import Outgoing, TopicPartition
from tests.unit.refit.world import config
from workers.calibrate import GROUP, Calibrate
from workers.role import wall_clock_ms

LATENESS_MS = 300_000


class Clock:
    """Wall time that stands still but for what a test adds."""

    def __init__(self) -> None:
        self.now_ms = wall_clock_ms()

    def __call__(self) -> int:
        return self.now_ms


class Running:
    def __init__(self) -> None:
        self.clock = Clock()
        self.log = MemoryLog(now_ms=self.clock)
        for topic in ("scores", "blocks", "calibrated", "dead-letters"):
            self.log.create_topic(topic, 1)
        self.role = Calibrate(config(), self.clock)
        self.statuses: list[Any] = []
        follower = SimpleNamespace(current=lambda: None, staleness_ms=0, damaged=None, behind=False)
        board = SimpleNamespace(put=self.statuses.append)
        self.role._state, self.role._follower = SimpleNamespace(board=board), follower  # type: ignore[assignment]  # stand-ins
        self.role._consumer = self.log.consumer(GROUP, ["scores"], member="a")

    def score(self, event_id: str) -> None:
        event = {"event_id": event_id, "score": 0.5, "r": "north"}
        self.log.produce([Outgoing("scores", b"k", json.dumps(event).encode())])

    def read(self, topic: str) -> list[bytes]:
        return [record.value or b"" for record in self.log.read(TopicPartition(topic, 0), 0, 100)]

    def clocks(self) -> list[int]:
        blocks = self.log.read(TopicPartition("blocks", 0), 0, 100)
        return [json.loads(record.value or b"")["clock_ms"] for record in blocks if is_control(record)]


@pytest.fixture
def running() -> Iterator[Running]:
    made = Running()
    yield made
    made.role._consumer.close()


def test_at_the_end_of_its_input_the_clock_follows_wall_time_once_a_second(running: Running) -> None:
    began = running.clock.now_ms
    for _ in range(3):
        running.role.step()
    running.clock.now_ms += 1_000
    running.role.step()
    assert running.clocks() == [began - LATENESS_MS, began + 1_000 - LATENESS_MS]


def test_a_clock_never_speaks_of_what_came_after_the_poll(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process stands still for an hour with a batch in hand; what is scored meanwhile must not become late."""
    apply, began = running.role._transform.apply, running.clock.now_ms

    def stands_still(*arguments: Any) -> Any:
        running.clock.now_ms += 3_600_000
        return apply(*arguments)

    monkeypatch.setattr(running.role._transform, "apply", stands_still)
    running.score("a")
    running.role.step()
    assert len(running.read("calibrated")) == 1
    assert running.clocks() == [began - LATENESS_MS]


def test_scores_are_served_while_no_status_can_be_written(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that is full refuses writes, and is read as before."""

    def full(status: Any) -> None:
        raise StateUnavailableError("full")

    monkeypatch.setattr(running.role._state.board, "put", full)
    for name in "abc":
        running.clock.now_ms += 5_000
        running.score(name)
        running.role.step()
    assert len(running.read("calibrated")) == 3
    monkeypatch.setattr(running.role._state.board, "put", running.statuses.append)
    running.clock.now_ms += 5_000
    running.role.step()
    assert len(running.statuses) == 1
