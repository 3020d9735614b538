"""Alerts of the deployment that its monitors raise by themselves: clocks that stand, roles that are behind, rejects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.alerts.model import Alert
from stream_calib.config import Config
from stream_calib.transport.memory import MemoryLog
from stream_calib.transport.port import Outgoing, TopicPartition
from stream_calib.windows.memory_state import MemoryState
from tests.outbox import alarms
from workers.alerting_deployment import DeploymentConditions
from workers.input_reports import InputReport
from workers.input_waits import InputWaits, Wait
from workers.status_board import MemberStatus, StatusBoard

MINUTE_MS = 60_000
SIDES = {"blocks": "s", "labels": "l"}
BEGIN_MS = 1_700_000_000_000


class Board(StatusBoard):
    """Of the deployment, in memory."""

    def __init__(self) -> None:
        self.statuses: list[MemberStatus] = []

    def all(self, now_ms: int) -> list[MemberStatus]:
        return self.statuses


class Deployment:
    """Two monitors that see the same, unless a test says otherwise. Times are minutes since it began."""

    def __init__(self, **sections: Any) -> None:
        base: dict[str, Any] = {"model": {"name": "m"}, "windows": {"horizon": "2h"}}
        self.config = Config.model_validate(base | sections)
        self.state, self.board = MemoryState(), Board()
        self.now_ms = BEGIN_MS
        self.log = MemoryLog(now_ms=lambda: self.now_ms)
        self.log.create_topic("labels", 1)
        self.monitors = [self.monitor(), self.monitor()]
        self.reports: dict[TopicPartition, InputReport | None] = {}
        self.left_out: list[TopicPartition] = []
        self.members: dict[tuple[str, str], dict[str, Any]] = {}
        """(role, member) -> facts."""
        self.silent: set[str] = set()
        """Members that say nothing any more."""
        self.at_ms: dict[str, int] = {}

    def monitor(self) -> DeploymentConditions:
        return DeploymentConditions(self.log, self.state, self.board, self.config, SIDES, lambda: self.now_ms)

    def statuses(self) -> list[MemberStatus]:
        for _, member in self.members:
            if member not in self.silent:
                self.at_ms[member] = self.now_ms
        return [MemberStatus(role, m, self.at_ms[m], facts) for (role, m), facts in self.members.items()]

    def look(self, minutes: float, *, monitors: list[DeploymentConditions] | None = None) -> list[str]:
        """What is told while so much time goes by."""
        before = len(self.told())
        for _ in range(round(minutes * 6)):
            self.now_ms += 10_000
            self.log.produce([Outgoing("labels", None, b"{}")])
            self.goes_on()
            for monitor in monitors or self.monitors:
                if monitor.due(self.now_ms):
                    monitor.look(self.now_ms, self.statuses(), self.reports, self.left_out)
        return [f"{alert.dedup_key.partition(':')[2]} {alert.state}" for alert in self.told()[before:]]

    def goes_on(self) -> None:
        """What the test lets happen as time goes by."""

    def told(self) -> list[Alert]:
        return alarms(self.state)


# --- clocks that stand


class Clocks(Deployment):
    """Two partitions of blocks and of labels, all read to their ends; those in `moving` have a clock of now."""

    def __init__(self, **sections: Any) -> None:
        super().__init__(**sections)
        self.moving = {TopicPartition(topic, p) for topic in SIDES for p in range(2)}
        self.unread: set[TopicPartition] = set()
        self.clocks = dict.fromkeys(self.moving, BEGIN_MS)
        self.idle_since = dict.fromkeys(self.moving, BEGIN_MS)
        self.unknown: set[TopicPartition] = set()

    def goes_on(self) -> None:
        for partition in self.clocks:
            if partition in self.moving:
                self.clocks[partition] = self.idle_since[partition] = self.now_ms
            idle = None if partition in self.unread else self.idle_since[partition]
            report = InputReport(7, self.clocks[partition], idle)
            self.reports[partition] = None if partition in self.unknown else report


B0, B1, L0, L1 = (TopicPartition(topic, p) for topic in SIDES for p in range(2))


def test_a_clock_that_stands_and_is_behind_opens_an_alert_of_its_topic_that_names_it() -> None:
    made = Clocks()
    assert made.look(20) == []
    made.moving -= {B1}
    assert made.look(15.0) == []
    assert made.look(1.0) == ["watermark_stalled:blocks open"]
    (opened,) = made.told()
    assert (opened.severity, opened.since_ms) == ("warning", BEGIN_MS + 20 * MINUTE_MS)
    assert opened.evidence["clocks"] == {"1": {"clock_ms": BEGIN_MS + 20 * MINUTE_MS}}
    assert (opened.evidence["standing"], opened.evidence["partitions"]) == (1, 2)
    assert opened.diagnosis.startswith(
        "blocks: the clocks of 1 of 2 partitions (1) stand since 2023-11-14 22:33 UTC, 16 "
    )
    made.monitors, made.idle_since[B1] = [made.monitor()], made.now_ms
    assert made.look(20) == [], "who reads it now has not read it for long"
    made.moving |= {B1}
    assert made.look(1) == ["watermark_stalled:blocks close"]


def test_a_further_partition_is_news() -> None:
    made = Clocks()
    made.moving -= {B1}
    assert made.look(17) == ["watermark_stalled:blocks open"]
    made.moving -= {B0}
    assert made.look(21) == []
    assert made.look(6) == ["watermark_stalled:blocks update"]
    assert made.told()[-1].evidence["standing"] == 2
    assert made.look(60) == []


def test_when_calibrate_is_gone_all_clocks_of_scores_stand_though_none_is_behind_another() -> None:
    made = Clocks()
    made.moving -= {B0, B1}
    made.look(25)
    (opened,) = made.told()
    assert opened.dedup_key.endswith("watermark_stalled:blocks")
    assert opened.evidence["standing"] == 2


def test_labels_that_are_all_silent_are_an_outage_and_no_stalled_clock() -> None:
    made = Clocks()
    made.moving -= {L0, L1}
    assert made.look(60) == []


def test_a_label_partition_that_is_left_out_holds_nothing_up() -> None:
    made = Clocks()
    made.moving -= {L1}
    made.left_out = [L1]
    assert made.look(60) == []
    made.left_out = []
    assert made.look(2) == ["watermark_stalled:labels open"]
    assert "windows.idle_timeout" in made.told()[-1].diagnosis


def test_unread_records_are_no_silence() -> None:
    made = Clocks()
    made.moving -= {B1}
    made.unread = {B1}
    assert made.look(60) == []


def test_what_no_monitor_reads_neither_opens_nor_closes_it() -> None:
    made = Clocks()
    made.moving -= {B1}
    made.unknown = {B1}
    assert made.look(30) == []
    made.unknown = set()
    assert made.look(2) == ["watermark_stalled:blocks open"]
    made.unknown = {B1}
    assert made.look(30) == []
    made.unknown = {B0, B1}
    assert made.look(30) == []


class Empty(Clocks):
    """The second partition of blocks has had nothing yet."""

    def goes_on(self) -> None:
        super().goes_on()
        self.reports[B1] = InputReport(0, None, BEGIN_MS)


def test_a_partition_without_an_event_stands_since_it_is_read() -> None:
    made = Empty()
    assert made.look(17) == ["watermark_stalled:blocks open"]
    assert made.told()[0].evidence["clocks"] == {"1": {"clock_ms": None}}


def test_history_has_clocks_that_stand() -> None:
    made = Clocks(serving={"clock_records": "off"})
    made.moving -= {B1}
    assert made.look(60) == []


# --- roles that are behind


def behind(made: Deployment, role: str, member: str, **waits: tuple[int, int, int | None]) -> None:
    made.members[role, member] = {"waits": dict(waits)}


def test_a_clock_that_was_set_back_does_not_keep_monitors_from_looking() -> None:
    made = Deployment()
    made.look(1)
    made.now_ms -= 60 * MINUTE_MS
    behind(made, "monitor", "a", p0=(5, 20 * MINUTE_MS, None))
    assert made.look(2) == ["lag:monitor open"]


def test_a_role_whose_records_wait_too_long_is_told_of_with_the_worst_partitions() -> None:
    made = Deployment()
    behind(made, "calibrate", "a", p0=(5, 100, 5_000))
    behind(made, "calibrate", "b")
    behind(made, "monitor", "c")
    assert made.look(30) == []
    behind(made, "calibrate", "b", p1=(9_000, 10 * MINUTE_MS, None), p2=(10, 11 * MINUTE_MS, 12 * MINUTE_MS))
    assert made.look(0.9) == []
    assert made.look(0.5) == ["lag:calibrate open"]
    (opened,) = made.told()
    assert opened.evidence["partitions"] == {
        "p2": {"records": 10, "waited_ms": 11 * MINUTE_MS},
        "p1": {"records": 9_000, "waited_ms": 10 * MINUTE_MS},
    }
    assert (opened.evidence["records"], opened.severity) == (9_010, "warning")
    assert opened.diagnosis.startswith(
        "calibrate is behind: up to 9,010 records of 2 partitions (p2, p1) wait, the oldest"
    )
    behind(made, "calibrate", "b", p1=(9_000, 6 * MINUTE_MS, 6 * MINUTE_MS))
    assert made.look(10) == [], "less, and not yet well below"
    behind(made, "calibrate", "b", p1=(9_000, 100, None))
    assert made.look(10) == [], "a process that has just begun does not know"
    behind(made, "calibrate", "b", p1=(9_000, 100, 4 * MINUTE_MS))
    assert made.look(2) == ["lag:calibrate close"]


def test_a_process_that_says_nothing_any_more_neither_opens_nor_closes_it() -> None:
    made = Deployment()
    behind(made, "monitor", "a", p0=(5, 20 * MINUTE_MS, None))
    assert made.look(2) == ["lag:monitor open"]
    made.silent = {"a"}
    assert made.look(30) == []
    behind(made, "monitor", "b")
    assert made.look(2) == ["lag:monitor close"]


@pytest.mark.parametrize("off", [{"alerts": {"conditions": {"lag": "off"}}}, {"serving": {"clock_records": "off"}}])
def test_what_is_switched_off_closes(off: dict[str, Any]) -> None:
    made = Deployment()
    behind(made, "monitor", "a", p0=(5, 20 * MINUTE_MS, None))
    assert made.look(2) == ["lag:monitor open"]
    made.config = Config.model_validate({"model": {"name": "m"}, "windows": {"horizon": "2h"}, **off})
    made.monitors = [made.monitor()]
    assert made.look(30) == ["lag:monitor close"]
    assert "alerts.conditions.lag is off" in made.told()[-1].diagnosis


def test_clocks_that_nobody_looks_at_any_more_close_their_alert() -> None:
    made = Clocks()
    made.moving -= {B1}
    assert made.look(17) == ["watermark_stalled:blocks open"]
    off = {"model": {"name": "m"}, "windows": {"horizon": "2h"}, "alerts": {"conditions": {"watermark_stalled": "off"}}}
    made.config = Config.model_validate(off)
    made.monitors = [made.monitor()]
    assert made.look(30) == ["watermark_stalled:blocks close"]


P = TopicPartition("scores", 0)


def test_what_waits_is_bounded_by_the_ends_that_were_seen() -> None:
    waits = InputWaits(Deployment().config)
    waits.note(0, {P: 5}, {P: 5})
    assert waits.waits == {}
    waits.note(30_000, {P: 5}, {P: 15})
    assert waits.waits == {P: Wait(10, 0, 30_000)}
    waits.note(90_000, {P: 10}, {P: 25})
    assert waits.waits == {P: Wait(15, 60_000, 90_000)}
    waits.note(120_000, {P: 15}, {P: 35})
    assert waits.waits == {P: Wait(20, 30_000, 90_000)}
    waits.note(121_000, {P: 35}, {P: 35})
    assert waits.waits == {}
    assert waits.facts() == {"waits": {}}


def test_when_the_clock_was_set_back_it_is_not_known_for_how_long_records_have_waited() -> None:
    waits = InputWaits(Deployment().config)
    waits.note(3_600_000, {P: 5}, {P: 5})
    waits.note(3_660_000, {P: 5}, {P: 15})
    waits.note(60_000, {P: 5}, {P: 15})
    assert waits.waits == {P: Wait(10, 0, None)}
    waits.note(120_000, {P: 5}, {P: 15})
    assert waits.waits == {P: Wait(10, 60_000, None)}


def test_of_what_was_there_when_it_began_a_process_knows_only_how_long_it_has_seen_it() -> None:
    waits = InputWaits(Deployment().config)
    waits.note(0, {P: 5}, {P: 15})
    waits.note(600_000, {P: 5}, {P: 15})
    assert waits.waits == {P: Wait(10, 600_000, None)}
    assert waits.facts() == {"waits": {"scores-0": Wait(10, 600_000, None)}}
    waits.note(610_000, {}, {})
    waits.note(620_000, {P: 5}, {P: 15})
    assert waits.waits == {P: Wait(10, 0, None)}, "it was another process's meanwhile"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 6), st.integers(0, 6)), max_size=150))
def test_the_true_wait_is_within_what_is_told(steps: list[tuple[int, int, int]]) -> None:
    waits = InputWaits(Deployment().config)
    now_ms, position, taken_ms = 0, 0, list[int]()
    for seconds, written, read in steps:
        taken_ms += [now_ms] * written
        now_ms += 1_000 * seconds
        position = min(position + read, len(taken_ms))
        waits.note(now_ms, {P: position}, {P: len(taken_ms)})
        if position == len(taken_ms):
            assert waits.waits == {}
            continue
        wait = waits.waits[P]
        true_ms = now_ms - taken_ms[position]
        assert wait.records == len(taken_ms) - position
        assert wait.at_least_ms <= true_ms
        assert wait.at_most_ms is None or true_ms <= wait.at_most_ms
        assert len(waits._ends[P]) <= 64


# --- rejects


class Traffic(Deployment):
    """A calibrate that reads 100 records each ten seconds, of which a test has so many rejected."""

    def __init__(self, **sections: Any) -> None:
        super().__init__(**sections)
        self.rejects: Mapping[str, int] = {}
        self.member, self.records = "a", 100

    def goes_on(self) -> None:
        facts = self.members.setdefault(
            ("calibrate", self.member), {"records": {"scores": {"read": 0, "rejected": {}}, "other": {"read": 9}}}
        )
        counts = facts["records"]["scores"]
        counts["read"] += self.records
        counts["rejected"] = {
            reason: counts["rejected"].get(reason, 0) + self.rejects.get(reason, 0)
            for reason in {*counts["rejected"], *self.rejects}
        }


def test_many_rejects_open_an_alert_with_the_reasons_and_it_closes_when_the_window_is_clean() -> None:
    made = Traffic()
    assert made.look(30) == []
    made.rejects = {"score_missing": 20, "time_missing": 10}
    # Each of the 60 looks of a window adds .005 to the share: it is .05 with the 10th, and has been so for a minute.
    assert made.look(1.6) == []
    assert made.look(1.2) == ["rejected_rate:scores open"]
    (opened,) = made.told()
    assert opened.evidence["reasons"] == {"score_missing": 20 * 16, "time_missing": 10 * 16}
    assert (opened.evidence["read"], opened.evidence["rejected"]) == (6_000, 480)
    assert opened.evidence["share"] == pytest.approx(0.08)
    assert opened.diagnosis.startswith(
        "480 of 6,000 records of scores in 10m were rejected (score_missing 320, time_missing 160); they are on"
        " dead-letters, each with its reason"
    )
    made.rejects = {}
    assert made.look(7) == []
    assert made.look(5) == ["rejected_rate:scores close"]


def test_few_rejects_of_few_records_are_no_alert() -> None:
    made = Traffic()
    made.records, made.rejects = 0, {}
    made.look(20)
    made.records, made.rejects = 19, {"score_missing": 19}
    assert made.look(1 / 12) == []
    made.records, made.rejects = 0, {}
    assert made.look(20) == []


def test_another_foremost_reason_is_news() -> None:
    made = Traffic()
    made.look(11)
    made.rejects = {"score_missing": 30}
    assert made.look(10) == ["rejected_rate:scores open"]
    made.rejects = {"time_missing": 60}
    assert made.look(10) == []
    assert made.look(10) == ["rejected_rate:scores update"]


def test_a_monitor_that_starts_anew_closes_nothing_before_it_has_seen_a_whole_window() -> None:
    made = Traffic()
    made.look(11)
    made.rejects = {"score_missing": 30}
    assert made.look(10) == ["rejected_rate:scores open"]
    made.rejects = {}
    made.monitors = [made.monitor()]
    assert made.look(9.9) == []
    assert made.look(2) == ["rejected_rate:scores close"]


def test_counts_of_a_process_that_is_new_here_are_not_of_this_window() -> None:
    made = Traffic()
    made.look(11)
    made.members["calibrate", "old"] = {
        "records": {"scores": {"read": 1_000_000, "rejected": {"score_missing": 900_000}}}
    }
    assert made.look(11) == []
    made.members["calibrate", "old"]["records"]["scores"] = {"read": 0, "rejected": {}}
    assert made.look(11) == [], "begun anew under its name"


def test_what_the_board_of_the_deployment_has_counts_too() -> None:
    made = Traffic()
    made.member = "b"
    made.look(11)
    made.rejects = {"score_missing": 100}
    made.goes_on()
    (facts,) = made.members.values()
    made.members = {}
    made.board.statuses = [MemberStatus("calibrate", "b", made.now_ms, facts)]
    assert made.look(3) == ["rejected_rate:scores open"]


def test_history_is_rejected_as_well() -> None:
    made = Traffic(serving={"clock_records": "off"})
    made.look(11)
    made.rejects = {"score_missing": 100}
    assert made.look(3) == ["rejected_rate:scores open"]


# --- lost writes


def test_writes_that_were_lost_are_told_once_and_are_over_ten_minutes_after_the_last() -> None:
    made = Deployment()
    made.members["monitor", "a"] = {"rewound": {}}
    assert made.look(1) == []
    made.members["monitor", "a"] = {"rewound": {"blocks": made.now_ms, "labels": made.now_ms - 20 * MINUTE_MS}}
    assert made.look(6) == ["redis_writes_lost open"]
    made.members["monitor", "b"] = {"rewound": {"blocks": made.now_ms}}
    assert made.look(9) == []
    assert made.look(2) == ["redis_writes_lost close"]
    opened, _ = made.told()
    assert opened.evidence == {"topics": {"blocks": {"read_again_ms": BEGIN_MS + MINUTE_MS}}}
    assert opened.diagnosis.startswith("shards had lost writes of blocks, which are read again and counted once. What ")


def test_a_monitor_whose_clock_is_behind_does_not_open_again_what_another_has_closed() -> None:
    made = Deployment()
    made.members["monitor", "a"] = {"rewound": {"blocks": made.now_ms}}
    assert made.look(1) == ["redis_writes_lost open"]
    made.now_ms = BEGIN_MS + 10 * MINUTE_MS
    for monitor, behind_ms in zip(made.monitors, (0, 3_000), strict=True):
        monitor.look(made.now_ms - behind_ms, made.statuses(), {}, [])
    assert [alert.state for alert in made.told()] == ["open", "close"]
