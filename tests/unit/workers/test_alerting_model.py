"""Alerts of one model key that no pane decides: silence, and a snapshot that is too old."""

from __future__ import annotations

from typing import Any

import pytest

from stream_calib.alerts.model import Alert
from stream_calib.config import Config
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.store import SnapshotStore
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.panes import ENDED_CLOCK_MS
from stream_calib.windows.state_store import Commit
from tests.outbox import alarms
from tests.unit.snapshot.asking import ask
from tests.unit.snapshot.documents import report, structure
from workers.alerting_model import ModelConditions

HOUR_MS = 3_600_000
KEY = ModelKey("m", "1")
LIMITS = {"no_scores": "3h", "snapshot_age": "10h"}


class Watched:
    """A model key of panes of an hour and a horizon of two, looked at by two closers in turn."""

    def __init__(self, serving: dict[str, Any] | None = None, **conditions: str) -> None:
        self.config = Config.model_validate(
            {
                "model": {"name": "m"},
                "windows": {"horizon": "90m"},
                "serving": serving or {},
                "alerts": {"conditions": LIMITS | conditions},
            }
        )
        self.state = MemoryState()
        self.state.commit(Commit(fields={"first_pane": "100", "decided": "99", "closed": "99"}))
        assert self.state.acquire_lease("refit", "w", 1_000) == "1"
        self.snapshots = SnapshotStore(self.state, KEY, "g", HOUR_MS, lambda: 1)
        self.later: ModelKey | None = None
        self.closers = [self.closer(), self.closer()]
        self.now_ms = 0

    def closer(self) -> ModelConditions:
        return ModelConditions(KEY, "g", self.state, self.snapshots, self.config, lambda pane: self.later)

    def look(self, watermark: float | None, last_scored: int | None, minutes: int = 3) -> list[str]:
        """What is told in some minutes of wall time. `watermark`: in panes."""
        before = len(self.told())
        for _ in range(minutes * 6):
            self.now_ms += 10_000
            for closer in self.closers:
                closer.look(self.now_ms, None if watermark is None else round(watermark * HOUR_MS), last_scored)
        return [f"{alert.kind} {alert.state}" for alert in self.told()[before:]]

    def told(self) -> list[Alert]:
        return alarms(self.state)

    def publish(self, name: str, last_pane: int) -> str:
        self.state.commit(Commit(fields={"decided": str(last_pane - 1)}))
        parent = self.snapshots.current()
        request = ask(self.state, name, parent)
        candidate = structure(name, parent, last_pane=last_pane)
        return self.snapshots.publish(candidate, report(name, pane=request.pane), "1")

    def answer(self, name: str, outcome: str) -> None:
        request = ask(self.state, name, self.snapshots.current())
        self.snapshots.settle(report(name, outcome, request.pane), "1")


def test_silence_opens_after_the_limit_and_closes_with_the_first_score() -> None:
    watched = Watched(snapshot_age="off")
    assert watched.look(105.5, 105) == []
    assert watched.look(108.9, 105) == [], "2.9 h after the end of the last pane with a score"
    assert watched.look(109.0, 105, minutes=1) == [], "at first it may be over in a moment"
    assert watched.look(109.1, 105) == ["no_scores open"]
    watched.closers = [watched.closer()]
    assert watched.look(130.0, 105) == []
    assert watched.look(130.2, 130) == ["no_scores close"]
    opened, closed = watched.told()
    assert (opened.severity, opened.since_ms, opened.pane) == ("critical", 106 * HOUR_MS, 106)
    assert opened.evidence == {"silent_ms": round(3.1 * HOUR_MS), "limit_ms": 3 * HOUR_MS}
    assert opened.diagnosis.startswith("no scores of m since 1970-01-05 10:00 UTC, for 3 h: look at what produces them")
    assert (closed.diagnosis, closed.dedup_key) == ("m is scored again", opened.dedup_key)


def test_what_is_switched_off_closes() -> None:
    watched = Watched(snapshot_age="1h")
    assert watched.look(115.0, 110) == ["no_scores open", "snapshot_too_old open"]
    watched.config = Watched(no_scores="off", snapshot_age="off").config
    watched.closers = [watched.closer()]
    assert sorted(watched.look(116.0, 110)) == ["no_scores close", "snapshot_too_old close"]
    assert "alerts.conditions.no_scores is off" in watched.told()[-2].diagnosis


def test_a_version_gives_way_to_another_one_that_is_scored() -> None:
    watched = Watched()
    watched.later = ModelKey("m", "2")
    assert watched.look(120, 105) == []
    watched.later = None
    assert watched.look(130, 105) == ["no_scores open"]
    watched.later = ModelKey("m", "2")
    assert watched.look(131, 105) == ["no_scores close"]
    assert watched.told()[-1].diagnosis == "m/2 is scored in its place"


@pytest.mark.parametrize(("watermark", "last_scored"), [(None, 105), (120.0, None), (ENDED_CLOCK_MS / HOUR_MS, 105)])
def test_what_is_not_known_is_no_silence(watermark: float | None, last_scored: int | None) -> None:
    assert Watched().look(watermark, last_scored) == []


def test_history_is_neither_silent_nor_old() -> None:
    assert Watched({"clock_records": "off"}).look(400, 300) == []


def test_conditions_can_be_off() -> None:
    assert Watched(no_scores="off", snapshot_age="off").look(401, 300) == []


def test_a_snapshot_grows_old_with_the_traffic_it_serves() -> None:
    watched = Watched()
    version = watched.publish("r1", 104)
    # The newest pane that could have matured is two behind the traffic: ten after those of the fit are 105 to 114.
    assert watched.look(117, 116) == ["snapshot_too_old open"]
    assert watched.look(117.5, 117) == [], "no news"
    watched.publish("r2", 115)
    assert watched.look(118, 117) == ["snapshot_too_old close"]
    opened, closed = watched.told()
    assert (opened.severity, opened.since_ms) == ("warning", 117 * HOUR_MS)
    assert opened.evidence == {
        "version": version,
        "fitted_until_ms": 105 * HOUR_MS,
        "age_ms": 10 * HOUR_MS,
        "limit_ms": 10 * HOUR_MS,
    }
    assert opened.diagnosis == (
        f"{version} was fitted on data up to 1970-01-05 09:00 UTC, 10 h before what could be used by now: no refit was"
        " asked for since; do labels come, and do panes mature?"
    )
    assert closed.dedup_key == opened.dedup_key


def test_one_pane_earlier_it_is_young_enough() -> None:
    watched = Watched()
    watched.publish("r1", 104)
    assert watched.look(116, 115) == []


def test_a_first_snapshot_that_does_not_come_is_too_old_as_well() -> None:
    watched = Watched()
    assert watched.look(113, 112) == ["snapshot_too_old open"]
    assert watched.told()[0].diagnosis.startswith("there is no snapshot yet, since 1970-01-05 04:00 UTC, 11 h before")


@pytest.mark.parametrize(
    ("outcomes", "said", "figures"),
    [
        (["refused"], "refits since then: 1 refused; the last: as it went", {"refused": 1}),
        (["failed", "refused", "failed"], "refits since then: 2 failed, 1 refused;", {"failed": 2, "refused": 1}),
    ],
)
def test_it_says_why_there_is_no_newer_one(outcomes: list[str], said: str, figures: dict[str, int]) -> None:
    watched = Watched()
    watched.publish("r1", 104)
    for number, outcome in enumerate(outcomes):
        watched.answer(f"a{number}", outcome)
    watched.look(120, 119)
    (opened,) = [alert for alert in watched.told() if alert.kind == "snapshot_too_old"]
    assert said in opened.diagnosis
    assert figures.items() <= opened.evidence.items()


def test_another_reason_is_news_after_an_hour() -> None:
    watched = Watched()
    watched.publish("r1", 104)
    watched.look(120, 119)
    watched.snapshots.pin(None, "ann", "audit")
    assert watched.look(120, 119, minutes=58) == []
    assert watched.look(120, 119, minutes=4) == ["snapshot_too_old update"]
    assert "ann pinned it (audit)" in watched.told()[-1].diagnosis
    assert watched.look(120, 119, minutes=120) == []


def test_an_unanswered_request_is_named() -> None:
    watched = Watched()
    watched.publish("r1", 104)
    ask(watched.state, "r2", watched.snapshots.current())
    watched.look(120, 119)
    assert "a refit was asked for and is not answered; is refit at work?" in watched.told()[-1].diagnosis


def test_what_nobody_scores_does_not_grow_old() -> None:
    watched = Watched(no_scores="off")
    watched.publish("r1", 104)
    assert watched.look(400, 110) == []
    assert watched.look(120, 119) == ["snapshot_too_old open"]
    assert watched.look(145, 119) == ["snapshot_too_old close"]
    assert watched.told()[-1].diagnosis == "nothing is scored with it any more"
