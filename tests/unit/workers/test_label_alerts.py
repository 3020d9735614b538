"""Alerts of labels that do not come, and of labels that come too late to count."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from stream_calib.alerts.model import Alert
from stream_calib.config import Config
from stream_calib.events.contracts import ModelKey
from stream_calib.transport.memory import MemoryLog
from stream_calib.transport.port import Outgoing
from stream_calib.windows.memory_shards import MemoryShards
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.state_store import Commit, StateStore
from workers.label_silence import LabelSilence
from workers.late_labels import LateLabels

HOUR_MS = 3_600_000


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text + "+00:00").timestamp() * 1_000)


def alerts(state: StateStore) -> list[Alert]:
    return [Alert.decode(raw) for raw in state.entries("outbox", 0)]


class Watched:
    """A labels topic of two partitions, looked at by two monitors."""

    def __init__(self, serving: dict[str, Any] | None = None, **labels: Any) -> None:
        self.now_ms = ms("2024-11-01T00:00")
        self.log = MemoryLog(now_ms=lambda: self.now_ms)
        self.log.create_topic("labels", 2)
        self.state = MemoryState()
        self.config = Config.model_validate(
            {"model": {"name": "m"}, "windows": {"horizon": "2h"}, "labels": labels, "serving": serving or {}}
        )
        self.monitors = [self.monitor(), self.monitor()]

    def monitor(self) -> LabelSilence:
        return LabelSilence(self.log, self.state, self.config, lambda: self.now_ms)

    def label(self) -> None:
        self.log.produce([Outgoing("labels", None, b"{}", (), 1)])

    def until(self, time: str) -> list[tuple[str, str]]:
        """Looks every ten minutes; the alerts' states so far and when each came (as an hour of November)."""
        end = ms(time)
        seen: list[tuple[str, str]] = []
        while self.now_ms < end:
            self.now_ms += HOUR_MS // 6
            before = len(alerts(self.state))
            for monitor in self.monitors:
                monitor.look()
            when = datetime.fromtimestamp(self.now_ms / 1_000, timezone.utc).strftime("%d %H:%M")
            seen += [(alert.state, when) for alert in alerts(self.state)[before:]]
        return seen


def test_nightly_labels_are_no_outage_until_a_load_that_was_due_has_not_come() -> None:
    watched = Watched(schedule=["mon-fri 06:00"], schedule_grace="2h")
    assert watched.until("2024-11-01T05:50") == []
    watched.label()  # Friday's load, a little early
    assert watched.until("2024-11-04T07:50") == [], "nothing is due over the weekend"
    assert watched.until("2024-11-04T12:00") == [("open", "04 08:00")]
    watched.label()
    assert watched.until("2024-11-05T06:30") == [("close", "04 12:10")]
    opened, closed = alerts(watched.state)
    assert (opened.kind, opened.severity, opened.dedup_key) == ("label_outage", "critical", closed.dedup_key)
    assert opened.id != closed.id
    assert opened.diagnosis.startswith("no label has come to labels which was due at 2024-11-04 06:00: no pane matures")


def test_without_a_schedule_it_opens_after_the_grace_and_once_for_all_monitors_and_restarts() -> None:
    watched = Watched()
    watched.label()
    assert watched.until("2024-11-01T06:00") == []
    assert watched.until("2024-11-01T08:00") == [("open", "01 06:10")]
    watched.monitors = [watched.monitor()]
    assert watched.until("2024-11-02T08:00") == []
    watched.label()
    assert watched.until("2024-11-02T09:00") == [("close", "02 08:10")]
    assert watched.until("2024-11-03T00:00") == [("open", "02 14:10")]
    assert len({alert.id for alert in alerts(watched.state)}) == 3


@pytest.mark.parametrize(
    ("labels", "opens_at"),
    [({}, "2024-11-02T10:00"), ({"schedule": ["06:00"], "schedule_grace": "2h"}, "2024-11-03T08:00")],
)
def test_a_monitor_whose_clock_is_behind_does_not_close_what_another_has_opened(
    labels: dict[str, Any], opens_at: str
) -> None:
    watched = Watched(**labels)
    ahead, behind = watched.monitors
    for time in ("2024-11-01T00:00", "2024-11-02T04:00"):
        watched.now_ms = ms(time)
        watched.label()
        ahead.look()
    for monitor, seconds in ((ahead, 1), (behind, -2), (ahead, 12), (behind, 9)):
        watched.now_ms = ms(opens_at) + 1_000 * seconds
        monitor.look()
    assert [alert.state for alert in alerts(watched.state)] == ["open"]
    watched.label()
    watched.now_ms += 60_000
    behind.look()
    assert [alert.state for alert in alerts(watched.state)] == ["open", "close"]


def test_a_load_that_was_due_before_anybody_watched_is_not_missed() -> None:
    watched = Watched(schedule=["00:00"], schedule_grace="1h")
    assert watched.until("2024-11-02T00:50") == []
    assert watched.until("2024-11-02T01:30") == [("open", "02 01:00")]


def test_history_has_no_wall_clock_to_be_late_by() -> None:
    assert Watched(serving={"clock_records": "off"}).until("2024-11-05T00:00") == []


def test_what_was_open_closes_where_nobody_looks_any_more() -> None:
    watched = Watched()
    assert watched.until("2024-11-01T08:00") == [("open", "01 06:10")]
    watched.config = Watched(serving={"clock_records": "off"}).config
    watched.monitors = [watched.monitor()]
    assert watched.until("2024-11-01T10:00") == [("close", "01 08:10")]


# --- late labels


class Counted(MemoryShards):
    """Shards of which the test says what they have counted."""

    def __init__(self, settings: PaneSettings) -> None:
        super().__init__(1, settings)
        self.counted: dict[str, int] = {}
        self.asked_after: list[int] = []

    def counts_after(self, pane: int) -> dict[str, int]:
        self.asked_after.append(pane)
        return self.counted


class LateWatched:
    def __init__(self, **labels: Any) -> None:
        self.config = Config.model_validate({"model": {"name": "m"}, "windows": {"horizon": "2h"}, "labels": labels})
        self.state, self.shards = MemoryState(), Counted(PaneSettings.of(self.config))
        self.watch = self.another()
        self.now_ms = 0

    def another(self) -> LateLabels:
        return LateLabels(ModelKey("m", "1"), "g", self.state, self.shards, self.config)

    def look(self, late: int, labels: int, watch: LateLabels | None = None) -> list[str]:
        self.shards.counted = {"label_late": late, "labels": labels}
        before = len(alerts(self.state))
        self.now_ms += 30_000
        (watch or self.watch).look(self.now_ms)
        return [alert.state for alert in alerts(self.state)[before:]]


@pytest.mark.parametrize(
    ("late", "labels", "opens"),
    [(99, 0, False), (100, 0, True), (100, 1_900, True), (100, 1_901, False), (0, 0, False)],
)
def test_many_late_labels_open_an_alert(late: int, labels: int, opens: bool) -> None:
    assert LateWatched().look(late, labels) == (["open"] if opens else [])


def test_it_opens_once_with_the_exact_count_and_closes_once_well_below() -> None:
    watched = LateWatched()
    assert watched.look(1_234, 10_000) == ["open"]
    assert watched.look(2_000, 10_000) == []
    assert watched.look(2_000, 10_000, watched.another()) == []
    assert watched.look(400, 10_000) == []
    assert watched.look(200, 10_000) == ["close"]
    assert watched.look(5_000, 10_000) == ["open"]
    first, closed, second = alerts(watched.state)
    assert first.evidence == {"late": 1_234, "came": 11_234}
    assert (first.kind, first.severity) == ("late_labels", "warning")
    assert first.dedup_key == closed.dedup_key == second.dedup_key
    assert len({first.id, closed.id, second.id}) == 3


def test_it_speaks_of_panes_that_have_not_matured() -> None:
    watched = LateWatched()
    watched.state.commit(Commit(fields={"matured": "480000"}))
    assert watched.look(500, 0) == ["open"]
    assert watched.shards.asked_after == [480_000]
    assert alerts(watched.state)[0].since_ms == 480_001 * HOUR_MS


def test_the_setting_to_change_is_named() -> None:
    watched = LateWatched()
    watched.look(1_234, 10_000)
    assert alerts(watched.state)[0].diagnosis == (
        "1,234 of 11,234 labels in panes that have not matured were late and are not counted: each was more than"
        " windows.label_lateness (1h) behind the newest label of its partition. Where labels are loaded in batches, in"
        ' any order, set labels.clock = "broker", or load them in order with `stream-calib labels load`; else lengthen'
        " windows.label_lateness"
    )
    by_broker = LateWatched(clock="broker")
    by_broker.look(1_234, 10_000)
    assert alerts(by_broker.state)[0].diagnosis.endswith(
        "behind the time at which the log took its partition's newest; lengthen windows.label_lateness"
    )
