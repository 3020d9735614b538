"""The calibrate role around its transform, over a log and a state in memory: models, clock records, statuses, gaps."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from stream_calib.config import Config
from stream_calib.errors import PositionLostError, StateUnavailableError, TransportError
from stream_calib.events.blocks import unpack
from stream_calib.events.contracts import ModelKey
from stream_calib.events.control import is_control
from stream_calib.snapshot.served_models import ServedModels
from stream_calib.transport.memory import MemoryLog
from stream_calib.transport.port import OffsetRange, Outgoing, PolledBatch, TopicPartition
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.model_registry import ModelRegistry
from tests.unit.snapshot.publishing import publish
from workers.calibrate import GROUP, Calibrate
from workers.calibrate_status import CalibrateStatus
from workers.input_gaps import InputGaps
from workers.role import wall_clock_ms
from workers.status_board import MemberStatus

LATENESS_MS = 300_000
SCORES = TopicPartition("scores", 0)


class Clock:
    """Wall time that stands still but for what a test adds."""

    def __init__(self) -> None:
        self.now_ms = wall_clock_ms()

    def __call__(self) -> int:
        return self.now_ms


class State(MemoryState):
    """One that can be away, or full."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False

    def read(self, names: Sequence[str]) -> dict[str, str | None]:
        if self.away:
            raise StateUnavailableError("away")
        return super().read(names)


def configuration(**sections: Any) -> Config:
    base: dict[str, Any] = {
        "model": {"name": "m"},
        "scores": {"attributes": {"region": "r", "device": "d"}},
        "windows": {"horizon": "2h"},
    }
    return Config.model_validate({**base, **sections})


class Running:
    def __init__(self, config: Config, partitions: int = 1) -> None:
        self.clock = Clock()
        self.log = MemoryLog(now_ms=self.clock)
        self.log.create_topic("scores", partitions)
        for topic in ("blocks", "calibrated", "dead-letters"):
            self.log.create_topic(topic, 1)
        self.states: dict[Any, State] = defaultdict(State)
        self.statuses: dict[ModelKey, list[MemberStatus]] = defaultdict(list)
        self.config = config
        self.role = Calibrate(config, self.clock)
        registry = ModelRegistry(self.states["deployment"], config.model.max_keys)
        self.models = ServedModels(config, registry, self.states.__getitem__, self.clock)
        self.put: Any = lambda key, status: self.statuses[key].append(status)
        board = lambda key: SimpleNamespace(put=lambda status: self.put(key, status))  # noqa: E731 - a stand-in
        self.status = CalibrateStatus(config, "calibrate", "a", board, self.clock)  # type: ignore[arg-type]  # a stand-in of the board
        self.consumer = self.log.consumer(GROUP, ["scores"], member="a")
        self.gaps = InputGaps(self.states["deployment"], ModelKey("*", "d"), 3_600_000)
        self.role.work_with(self.log, self.consumer, self.models, self.status, self.gaps)

    def away(self, away: bool = True) -> None:
        for state in [*self.states.values(), self.states["deployment"]]:
            state.away = away

    def score(self, event_id: str, partition: int = 0, **fields: Any) -> None:
        event = {"event_id": event_id, "score": 0.5, "r": "north"} | fields
        self.log.produce([Outgoing("scores", b"k", json.dumps(event).encode(), (), partition)])

    def serve(self, event_id: str, **fields: Any) -> dict[str, Any]:
        """What our field says of one more score."""
        self.score(event_id, **fields)
        self.clock.now_ms += 1_000
        self.role.step()
        found: dict[str, Any] = json.loads(self.read("calibrated")[-1])
        assert found["event_id"] == event_id
        return found["stream_calib"]  # type: ignore[no-any-return]  # JSON

    def read(self, topic: str, partition: int = 0) -> list[bytes]:
        return [record.value or b"" for record in self.log.read(TopicPartition(topic, partition), 0, 100)]

    def clocks(self) -> list[int]:
        blocks = self.log.read(TopicPartition("blocks", 0), 0, 100)
        return [json.loads(record.value or b"")["clock_ms"] for record in blocks if is_control(record)]

    def rows(self) -> dict[ModelKey, int]:
        """Rows on `blocks`, by model key."""
        found: dict[ModelKey, int] = defaultdict(int)
        for record in self.log.read(TopicPartition("blocks", 0), 0, 100):
            if not is_control(record):
                block = unpack(record.value or b"")
                found[block.model_key] += len(block.score)
        return dict(found)


@pytest.fixture
def running() -> Iterator[Running]:
    made = Running(configuration())
    yield made
    made.consumer.close()


# --- clock records and positions ------------------------------------------------------------------------------


def test_at_the_end_of_its_input_the_clock_follows_wall_time_once_a_second(running: Running) -> None:
    began = running.clock.now_ms
    for _ in range(3):
        running.role.step()
    running.clock.now_ms += 1_000
    running.role.step()
    assert running.clocks() == [began - LATENESS_MS, began + 1_000 - LATENESS_MS]


def test_a_clock_never_speaks_of_what_came_after_the_poll(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process stands still for an hour with a batch in hand; what is scored meanwhile must not become late."""
    decode, began = running.role._transform.decode, running.clock.now_ms

    def stands_still(*arguments: Any) -> Any:
        running.clock.now_ms += 3_600_000
        return decode(*arguments)

    monkeypatch.setattr(running.role._transform, "decode", stands_still)
    running.score("a")
    running.role.step()
    assert len(running.read("calibrated")) == 1
    assert running.clocks() == [began - LATENESS_MS]


def test_the_position_follows_ends_of_transactions_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Running(configuration(serving={"clock_records": "off"}))
    made.role.step()
    commits: list[Any] = []
    monkeypatch.setattr(made.consumer, "commit", lambda outputs, positions: commits.append((list(outputs), positions)))
    for start in range(0, 10, 2):
        passed = PolledBatch(ranges={SCORES: OffsetRange(start, start + 2)})
        monkeypatch.setattr(made.consumer, "poll", lambda *_, passed=passed: passed)
        made.clock.now_ms += 400
        made.role.step()
    assert commits == [([], {SCORES: 2}), ([], {SCORES: 8})]


# --- the log --------------------------------------------------------------------------------------------------


def test_a_partition_that_what_is_written_lacks_is_told_and_nothing_of_it_is_lost() -> None:
    made = Running(configuration(), partitions=2)
    made.score("a", partition=1)
    for lacking in ("blocks", "calibrated"):
        told = f"scores has a partition 1, and {lacking} has only 1 partitions: add"
        with pytest.raises(TransportError, match=told):
            made.role.step()
        made.log.grow_topic(lacking, 2)
    made.role.step()
    assert len(made.read("calibrated", partition=1)) == 1


def test_nothing_is_lost_of_a_batch_after_which_the_log_is_away(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.score("a")
    partitions = running.log.partitions

    def away(topic: str) -> int:
        monkeypatch.setattr(running.log, "partitions", partitions)
        raise TransportError("away")

    monkeypatch.setattr(running.log, "partitions", away)
    with pytest.raises(TransportError, match="away"):
        running.role.step()
    running.role.step()
    assert len(running.read("calibrated")) == 1


@pytest.mark.parametrize("on_position_lost", ["stop", "skip"])
def test_a_lost_position(on_position_lost: str) -> None:
    made = Running(configuration(log={"on_position_lost": on_position_lost}))
    made.serve("a")
    for name in "bcde":
        made.score(name)
    made.log.trim(SCORES, 3, past_groups=True)

    if on_position_lost == "stop":
        with pytest.raises(PositionLostError):
            made.role.step()
        return
    made.role.step()
    made.role.step()
    assert [json.loads(o)["event_id"] for o in made.read("calibrated")] == ["a", "d", "e"]
    made.clock.now_ms += 1_000
    made.role.step()
    (gap,) = made.gaps.all()
    assert (gap.role, gap.topic, gap.partition, gap.first, gap.end) == ("calibrate", "scores", 0, 1, 3)
    assert made.consumer.committed(SCORES) == 5


def test_a_value_that_is_far_too_large_is_a_dead_letter_and_the_loop_goes_on() -> None:
    made = Running(configuration())
    made.score("a", padding="x" * 10_000_000)
    assert made.serve("b")["m"]["status"] == "identity"
    (letter,) = made.read("dead-letters")
    assert 800_000 < len(letter) < 900_000


# --- statuses -------------------------------------------------------------------------------------------------


def test_scores_are_served_while_no_status_can_be_written(running: Running) -> None:
    """A state that is full refuses writes, and is read as before."""
    written = running.put

    def full(key: ModelKey, status: Any) -> None:
        raise StateUnavailableError("full")

    running.put = full
    for name in "abc":
        running.serve(name)
    assert len(running.read("calibrated")) == 3
    running.put = written
    running.clock.now_ms += 5_000
    running.role.step()
    (status,) = running.statuses[ModelKey("m", "1")]
    assert status.facts == {
        "snapshot": "",
        "damaged": None,
        "behind": False,
        "partitions": ["scores-0"],
        "rejected": {},
        "records": {"scores": {"read": 3, "rejected": {}}},
        "waits": {},
    }


def test_a_process_that_has_met_no_model_yet_is_on_the_deployments_board() -> None:
    made = Running(configuration(model={"name_path": "n"}))
    made.role.step()
    assert {key: s[-1].facts for key, s in made.statuses.items()} == {
        ModelKey("*", "stream-calib"): {"partitions": ["scores-0"], "rejected": {}, "records": {}, "waits": {}}
    }


# --- several models -------------------------------------------------------------------------------------------


def test_each_version_is_served_by_its_own_snapshot() -> None:
    made = Running(configuration(model={"name": "m", "version_path": "v"}))
    assert made.serve("a", v="1")["m"]["status"] == "identity"
    first = publish(made.states[ModelKey("m", "1")], ModelKey("m", "1"))
    second = publish(made.states[ModelKey("m", "2")], ModelKey("m", "2"), level=1.0)

    one, two = made.serve("b", v="1")["m"], made.serve("c", v="2")["m"]

    assert (one["version"], one["snapshot"], one["status"]) == ("1", first, "calibrated")
    assert (two["version"], two["snapshot"], two["status"]) == ("2", second, "calibrated")
    assert one["calibrated"] < two["calibrated"]
    assert made.rows() == {ModelKey("m", "1"): 2, ModelKey("m", "2"): 1}
    assert {key: s[-1].facts["snapshot"] for key, s in made.statuses.items()} == {
        ModelKey("m", "1"): first,
        ModelKey("m", "2"): second,
    }


def test_models_in_one_record_have_a_member_and_rows_each() -> None:
    models = [{"name": "x", "score": "s.x"}, {"name": "y", "score": "s.y"}]
    made = Running(configuration(model={}, models=models))
    version = publish(made.states[ModelKey("y", "1")], ModelKey("y", "1"))

    served = made.serve("a", s={"x": 0.25, "y": 0.75})

    assert list(served) == ["x", "y"]
    assert (served["x"]["raw"], served["x"]["status"]) == (0.25, "identity")
    assert (served["y"]["raw"], served["y"]["snapshot"]) == (0.75, version)
    assert made.rows() == {ModelKey("x", "1"): 1, ModelKey("y", "1"): 1}


def test_keys_are_bounded_and_what_is_beyond_is_a_dead_letter() -> None:
    made = Running(configuration(model={"name_path": "n", "max_keys": 2}))
    for name in ("x", "y"):
        made.serve("a", n=name)
    made.score("b", n="z")
    made.role.step()
    assert json.loads(made.read("dead-letters")[-1])["n"] == "z"
    assert list(made.serve("c", n="x")) == ["x"]
    assert made.models._registry.known() == [ModelKey("x", "1"), ModelKey("y", "1")]


def test_wait_holds_everything_until_the_configured_models_have_snapshots() -> None:
    made = Running(configuration(serving={"bootstrap": "wait"}))
    made.score("a")
    assert made.role.step() is False
    assert "waits for a first snapshot of m/1" in (made.role.ready() or "")
    assert made.read("calibrated") == []
    publish(made.states[ModelKey("m", "1")], ModelKey("m", "1"))
    made.clock.now_ms += 1_000
    made.role.step()
    assert json.loads(made.read("calibrated")[0])["stream_calib"]["m"]["status"] == "calibrated"
    assert made.role.ready() is None


def test_a_batch_that_needs_a_state_that_is_away_is_polled_again() -> None:
    """A version that was registered by others may have a snapshot: the raw score must not stand in for it."""
    made = Running(configuration(model={"name": "m", "version_path": "v"}))
    made.models._registry.add(ModelKey("m", "2"))
    version = publish(made.states[ModelKey("m", "2")], ModelKey("m", "2"))
    made.serve("a", v="1")
    made.away()
    made.clock.now_ms += 1_000
    made.role.step()
    made.score("b", v="2")
    with pytest.raises(StateUnavailableError):
        made.role.step()
    assert len(made.read("calibrated")) == 1
    made.away(False)
    made.clock.now_ms += 60_000
    made.role.step()
    _, b = map(json.loads, made.read("calibrated"))
    assert (b["event_id"], b["stream_calib"]["m"]["snapshot"]) == ("b", version)


def test_a_member_without_partitions_is_ready_once_it_must_be_a_spare() -> None:
    made = Running(configuration())
    made.role.step()
    assert made.role.ready() is None
    spare = made.log.consumer(GROUP, ["scores"], member="b")
    made.role.work_with(made.log, spare, made.models, made.status, made.gaps)
    made.role.step()
    assert spare.assignment() == frozenset()
    assert made.role.ready() == "waits for partitions"
    made.clock.now_ms += 2 * made.config.log.session_timeout_ms
    assert made.role.ready() is None
