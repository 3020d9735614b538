"""The life of alerts of conditions: opened once, updated on news, closed once, whatever is seen and by how many."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.alerts.conditions import ConditionAlert, Level, Seen, Steadiness, level_of
from stream_calib.alerts.model import Alert
from stream_calib.alerts.standing import StandingAlert, told_of
from stream_calib.events.contracts import ModelKey
from stream_calib.windows.memory_state import MemoryState

KEY = ModelKey("*", "d")
FIELD = "lag:x"
STEADY = Steadiness(open_ms=60, close_ms=30, update_ms=20)


def watch(steadiness: Steadiness = STEADY) -> ConditionAlert:
    return ConditionAlert(FIELD, StandingAlert(KEY, "lag", 10, subject="x"), steadiness)


@dataclass
class World:
    state: MemoryState = field(default_factory=MemoryState)
    now_ms: int = 1_000
    alert: ConditionAlert = field(default_factory=watch)

    def look(self, level: Level, after_ms: int = 10, news: str = "", alert: ConditionAlert | None = None) -> list[str]:
        """What is told at a look, some time later."""
        self.now_ms += after_ms
        before = len(self.told())
        seen = Seen(level, self.now_ms, level, {"at": self.now_ms}, news)
        (alert or self.alert).look(self.state, self.state.read([FIELD]), seen, self.now_ms)
        return [alert.state for alert in self.told()[before:]]

    def told(self) -> list[Alert]:
        return [Alert.decode(raw) for raw in self.state.entries("outbox", 0)]


@pytest.mark.parametrize(
    ("value", "level"), [(0.0, "fine"), (0.49, "fine"), (0.5, "between"), (0.99, "between"), (1.0, "bad"), (7.0, "bad")]
)
def test_a_condition_opens_well_above_where_it_closes(value: float, level: Level) -> None:
    assert level_of(value, 1.0, 0.5) == level


def test_it_opens_after_it_was_bad_for_long_enough_and_closes_likewise() -> None:
    world = World()
    assert [world.look("bad", 30) for _ in range(4)] == [[], [], ["open"], []]
    assert [world.look("fine", 15) for _ in range(4)] == [[], [], ["close"], []]
    opened, closed = world.told()
    assert (opened.since_ms, closed.since_ms) == (1_090, 1_090)
    assert (opened.pane, opened.kind, opened.severity) == (109, "lag", "warning")
    assert opened.dedup_key == closed.dedup_key == "*/d:lag:x"
    assert (closed.diagnosis, closed.evidence) == ("fine", {"at": world.now_ms - 15})


@pytest.mark.parametrize("level", ["between", "fine"])
def test_one_look_that_is_not_bad_puts_the_opening_off(level: Level) -> None:
    world = World()
    world.look("bad")
    assert world.look("bad", 50) == []
    assert world.look(level, 5) == []
    assert world.look("bad", 5) == []
    assert world.look("bad", 59) == []
    assert world.look("bad", 1) == ["open"]


def test_it_is_updated_when_news_have_held_and_once_for_each() -> None:
    world = World()
    world.look("bad", news="a")
    assert world.look("bad", 60, "a") == ["open"]
    assert world.look("bad", 100, "a") == []
    assert world.look("bad", 10, "b") == []
    assert world.look("bad", 20, "b") == ["update"]
    assert world.look("bad", 500, "b") == []
    assert world.look("bad", 500, "c") == []
    assert world.look("bad", 10, "b") == [], "back before it was told"
    assert world.look("bad", 500) == [], "no news are none"
    told = world.told()
    assert [told_of(None), told_of("2:"), told_of("2:17")] == [(0, None, 0, ""), (2, None, 0, ""), (2, 17, 0, "")]
    assert len({alert.id for alert in told}) == 2


def test_whenever_it_opens_again_its_key_is_the_same_and_its_events_are_others() -> None:
    world = World()
    for _ in range(3):
        world.look("bad", news="a")
        assert world.look("bad", 60, "a") == ["open"]
        world.look("bad", news="b")
        assert world.look("bad", 20, "b") == ["update"]
        world.look("fine")
        assert world.look("fine", 30) == ["close"]
    told = world.told()
    assert len({alert.id for alert in told}) == 9
    assert len({alert.dedup_key for alert in told}) == 1


def test_in_a_state_that_was_lost_the_same_opening_has_the_same_id_and_another_one_another() -> None:
    worlds = [World(now_ms=now_ms, alert=watch(Steadiness(0, 0, 0))) for now_ms in (1_000, 1_000, 5_000)]
    for world in worlds:
        assert world.look("bad") == ["open"]
        assert world.look("fine") == ["close"]
    first, again, later = ([alert.id for alert in world.told()] for world in worlds)
    assert first == again
    assert not set(first) & set(later)


def test_a_process_that_starts_anew_neither_opens_again_nor_closes_at_once() -> None:
    world = World()
    world.look("bad", news="a")
    world.look("bad", 60, "a")
    world.alert = watch()
    assert [world.look("bad", 100, "a") for _ in range(3)] == [[], [], []]
    world.alert = watch()
    assert world.look("fine", 1_000) == []
    assert world.look("fine", 30) == ["close"]


def test_a_clock_that_was_set_back_puts_nothing_off_for_as_long() -> None:
    world = World(now_ms=1_000_000)
    world.look("bad")
    assert world.look("bad", -900_000) == []
    assert world.look("bad", 60) == ["open"]


def test_of_two_that_see_a_change_at_once_one_tells_it() -> None:
    world, other = World(), watch()
    for alert in (world.alert, other):
        world.look("bad", 0, alert=alert)
    world.now_ms += 60
    found = world.state.read([FIELD])
    for alert in (world.alert, other):
        alert.look(world.state, found, Seen("bad", world.now_ms, "bad"), world.now_ms)
    assert [alert.state for alert in world.told()] == ["open"]


looks = st.lists(
    st.tuples(
        st.integers(0, 1),  # who looks
        st.integers(1, 4),  # how often in a row
        st.sampled_from(["bad", "between", "fine"]),
        st.sampled_from(["", "a", "b"]),
        st.integers(0, 70),  # how much later
        st.sampled_from([False, False, False, True]),  # whether it has just started anew
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(looks)
def test_whatever_is_seen_its_life_is_open_updates_close(seen: list[tuple[int, int, Level, str, int, bool]]) -> None:
    world = World()
    watches = [watch() for _ in range(2)]
    held: list[tuple[str, int]] = [("", 0)] * 2
    for who, level, news, later_ms, anew in (one[:1] + one[2:] for one in seen for _ in range(one[1])):
        if anew:
            watches[who], held[who] = watch(), ("", 0)
        told = world.look(level, later_ms, news, watches[who])
        held[who] = held[who] if held[who][0] == level else (level, world.now_ms)
        steady_ms = world.now_ms - held[who][1]
        assert len(told) <= 1
        if told == ["open"]:
            assert level == "bad"
            assert steady_ms >= STEADY.open_ms
        elif told == ["close"]:
            assert level == "fine"
            assert steady_ms >= STEADY.close_ms
        elif told == ["update"]:
            assert level == "bad"
            assert news
    events = world.told()
    is_open = False
    for before, event in zip([None, *events], events, strict=False):
        assert (event.state == "open") is not is_open
        is_open = event.state != "close"
        if before is not None and event.state != "open":
            assert event.since_ms == before.since_ms
    assert is_open == (told_of(world.state.read([FIELD])[FIELD]).since_ms is not None)
    assert len({event.id for event in events}) == len(events)
    assert {event.dedup_key for event in events} <= {"*/d:lag:x"}
