"""Clocks, case by case, through the monitor role: what is silent, what is behind, what is ahead of its time.

The wall clock is the test's. Times are seconds after START_MS, as event times are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stream_calib.alerts.model import Alert
from stream_calib.redis_clients import RedisClient
from stream_calib.transport.memory import MemoryLog
from stream_calib.transport.port import TopicPartition
from stream_calib.windows.pane_record import PaneRecord
from tests.oracle.offline import Label, Score
from tests.windows.logs import START_MS
from tests.windows.monitors import PANE_S, A, InMemory, Monitored, at, monitored
from workers import monitor as monitor_module
from workers import poll_size
from workers.deployment import open_deployment_store
from workers.monitor import Monitor

pytestmark = pytest.mark.services
PANE_0 = START_MS // (1_000 * PANE_S)


class Timed(InMemory):
    """A log that takes records at the test's time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.log = MemoryLog(now_ms=self.now_ms, session_timeout_ms=10**12)

    def now_ms(self) -> int:
        return at(self.now_s)


class Live:
    """One monitor that lives by the test's wall clock."""

    def __init__(self, m: Monitored, time: Timed) -> None:
        self.m, self.time = m, time
        self.monitor = self.restart()

    def restart(self) -> Monitor:
        """One more monitor; the one before, if any, ends."""
        for old in list(self.m.monitors):
            self.m.stop(old)
        made = Monitor(self.m.config, self.time.now_ms)
        made.open()
        self.m.monitors.append(made)
        self.monitor = made
        return made

    def until(self, seconds: float, *, step: float = 2.0) -> None:
        """Time goes on until then, and the monitor works."""
        while self.time.now_s < seconds:
            self.time.now_s = min(self.time.now_s + step, seconds)
            self.monitor.step()

    def rest(self) -> None:
        """The monitor works, at this moment, until all is applied and nothing more can be done."""
        self.m.until_applied(A)
        at_rest: tuple[int, ...] = ()
        while at_rest != (now := self.cursors()):
            at_rest = now
            for _ in range(3):
                self.monitor.step()

    def cursors(self) -> tuple[int, int]:
        """closed and matured, counted from the pane of START_MS."""
        return self.m.cursor(A, "closed") - PANE_0, self.m.cursor(A, "matured") - PANE_0

    def record(self, pane: int) -> PaneRecord:
        return self.m.record(A, PANE_0 + pane)

    def alerts(self) -> list[Alert]:
        """Of the deployment."""
        store = open_deployment_store(self.m.client, self.m.config)
        return [Alert.decode(raw) for raw in store.entries("outbox", 0)]

    def input_key(self, topic: str, partition: int) -> str:
        return self.m.input_key(TopicPartition(topic, partition))

    # --- feeding, at the present moment

    def score(self, number: int, seconds: float, partition: int = 0) -> None:
        self.m.scores(A, partition, Score(f"id-{number}", at(seconds), 0.4, ("x",)))

    def label(self, number: int, seconds: float, partition: int = 0, value: int = 1) -> None:
        self.m.labels(partition, Label(f"id-{number}", at(seconds), value))


@contextmanager
def live(redis_url: str, monkeypatch: pytest.MonkeyPatch, *, partitions: int = 1, **sections: Any) -> Iterator[Live]:
    time = Timed()
    monkeypatch.setattr(monitor_module, "open_log", lambda config: time.log)
    with monitored(redis_url, monkeypatch, partitions=partitions, operator=time, **sections) as m:
        yield Live(m, time)


# --- labels that fall silent


def test_an_idle_label_partition_is_left_out_and_comes_back(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with live(redis_url, monkeypatch, partitions=2, windows={"idle_timeout": "30s"}) as one:
        one.m.clocks(0)
        for second in range(100):
            one.score(second, second)
        one.m.clocks(118, ["blocks"])
        for second in range(20):
            one.label(second, second + 1, second % 2)
        one.until(10)
        for second in range(20, 100, 2):
            one.label(second, second + 1, 0)  # the other half of the labels is missing
        one.m.labels_clock(0, 120)
        one.until(38)
        assert one.cursors()[1] < 1, "the other one has been ahead for less than the timeout"
        one.until(50)
        assert one.cursors()[1] == 9
        end = one.m.end("labels", 1)
        assert set(one.record(4).cut[one.input_key("labels", 1)].values()) == {end}
        assert (one.record(4).labelled, one.record(4).unlabelled) == (5, 5), "silence is no negative"
        # It comes back: what it brings for panes that have matured changes nothing, and it holds up the panes to come.
        for second in range(41, 50, 2):
            one.label(second, second + 1, 1)
        one.m.labels_clock(1, 50)
        for second in range(120, 160):
            one.score(second, second)
        one.m.labels_clock(0, 300)
        one.m.clocks(300, ["blocks"])
        one.until(60)
        assert one.cursors()[1] == 9, "it is behind, and not idle"
        for second in range(120, 160):
            one.label(second, second + 1, 1)
        one.m.labels_clock(1, 300)
        one.until(62)
        one.rest()
        assert (one.record(4).labelled, one.record(4).unlabelled) == (5, 5)
        assert [one.record(pane).labelled for pane in (12, 13, 14, 15)] == [10] * 4
        assert one.record(14).cut == {}


def test_after_a_long_silence_of_all_the_first_to_speak_leaves_out_nobody(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A nightly file of which one partition is written, or read, first."""
    with live(redis_url, monkeypatch, partitions=2, windows={"idle_timeout": "30s"}) as one:
        one.m.clocks(0)
        for second in range(60):
            one.score(second, second)
        one.m.clocks(500, ["blocks"])
        one.until(100)
        for second in range(0, 60, 2):
            one.label(second, second + 1, 0)
        one.m.labels_clock(0, 500)
        one.until(120)
        assert one.cursors()[1] < 0
        for second in range(1, 60, 2):
            one.label(second, second + 1, 1)
        one.m.labels_clock(1, 500)
        one.until(122)
        one.rest()
        assert [one.record(pane).labelled for pane in range(6)] == [10] * 6
        assert one.record(3).cut == {}


@pytest.mark.parametrize("missing_label", ["ignore", "negative_at_horizon"])
def test_when_all_labels_are_silent_panes_wait_and_an_alert_opens_and_closes(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, missing_label: str
) -> None:
    windows = {"idle_timeout": "10s", "missing_label": missing_label}
    with live(redis_url, monkeypatch, partitions=2, windows=windows, labels={"schedule_grace": "2m"}) as one:
        one.m.clocks(0)
        one.label(0, 0)
        for second in range(0, 300, 10):
            one.time.now_s = float(second)
            one.score(second, second, (second // 10) % 2)
            one.m.clocks(second, ["blocks"])
            one.monitor.step()
            if second == 110:
                assert one.alerts() == []
            if second == 200:
                one.restart()
        one.rest()
        closed, matured = one.cursors()
        assert closed > 20
        assert matured < 0, "nothing becomes negative by silence"
        (opened,) = one.alerts()
        assert (opened.kind, opened.state, opened.severity) == ("label_outage", "open", "critical")
        assert "no label has come to labels for 2 min: no pane matures" in opened.diagnosis
        # What comes after the outage joins as if there had been none.
        for second in range(0, 300, 10):
            one.label(second, second + 5, 0)
        one.m.clocks(340)
        one.until(310)
        one.rest()
        assert [alert.state for alert in one.alerts()] == ["open", "close"]
        records = [one.record(pane) for pane in range(30)]
        assert [(r.labelled, r.positives, r.unlabelled) for r in records] == [(1, 1, 0)] * 30


# --- scores that are behind


def test_a_calibrate_that_is_down_is_lag_and_no_silence(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels go on meanwhile; an idle score partition that was left out would close panes before their scores."""
    with live(redis_url, monkeypatch, partitions=2, windows={"idle_timeout": "10s"}) as one:
        one.m.clocks(0)
        for second in range(0, 40, 2):
            one.score(second, second, second % 4 // 2)
        for second in range(0, 1_200, 60):
            one.time.now_s = float(second)
            for partition in (0, 1):
                one.label(second, second + 1, partition)
            one.monitor.step()
            one.m.labels_clock(0, second)
            one.m.labels_clock(1, second)
        one.rest()
        assert one.cursors()[0] <= 2
        for second in range(60, 1_200, 60):  # calibrate is back, one partition after the other
            one.score(second, second, 1)
        one.m.clocks(1_300, ["labels"])
        one.rest()
        assert one.cursors()[0] <= 3, "the other partition is still to come"
        one.m.clocks(1_300, ["blocks"])
        one.until(1_210)
        one.rest()
        assert one.cursors()[1] >= 1_200 // PANE_S - 1
        assert one.m.check(A) > 18
        assert [one.record(second // PANE_S).labelled for second in range(60, 1_200, 60)] == [1] * 19


@pytest.mark.parametrize("topic", ["blocks", "labels"])
def test_one_partition_far_behind_is_waited_for(redis_url: str, monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
    with live(redis_url, monkeypatch, partitions=2) as one:
        one.m.clocks(0)
        for second in range(300):
            one.score(second, second, second % 2 if topic == "labels" or second < 10 else 0)
            one.label(second, second + 2, second % 2 if topic == "blocks" or second < 10 else 0)
        one.m.clocks(400, ["labels" if topic == "blocks" else "blocks"])
        one.until(5)
        one.rest()
        closed, matured = one.cursors()
        assert matured < 1
        assert (closed < 1) == (topic == "blocks")
        one.m.clocks(400)
        one.until(10)
        one.rest()
        assert one.cursors()[1] >= 30
        assert one.m.check(A) == 30


# --- events of the future


@pytest.mark.parametrize("skew", ["5s", "off"])
def test_a_time_stamp_of_the_future(redis_url: str, monkeypatch: pytest.MonkeyPatch, skew: str) -> None:
    """With the check it is counted and moves nothing; without, it makes all that follows in its partition late."""
    with live(redis_url, monkeypatch, windows={"max_clock_skew": skew}) as one:
        one.m.clocks(0)
        for second in range(60):
            one.time.now_s = float(second)
            one.score(second, second)
            one.label(second, second + 0.5)
            if second == 20:
                one.score(999, 1_000)
                one.label(19, 1_000)
            one.monitor.step()
        one.time.now_s = 100
        one.m.clocks(100)
        one.until(104)
        one.rest()
        if skew == "off":
            assert one.cursors()[1] > 90
            return
        records = [one.record(pane) for pane in range(6)]
        assert [r.counts["winners"] for r in records] == [10] * 6
        assert [r.labelled for r in records] == [10] * 6
        assert [r.counts.get("score_skewed", 0) for r in records] == [0, 0, 1, 0, 0, 0]
        assert [r.counts.get("label_skewed", 0) for r in records] == [0, 0, 1, 0, 0, 0]
        assert all("score_late" not in r.counts and "label_late" not in r.counts for r in records)


# --- a backlog


def most_pending(redis_url: str, monkeypatch: pytest.MonkeyPatch, max_input_skew: str) -> int:
    """The most rows that were in the join at once, while a long backlog was read at full speed.

    One partition has a record where the other one has ten, so by turns it is read ten times as fast.
    """
    monkeypatch.setattr(poll_size, "_MAX_RECORDS", 20)
    monkeypatch.setattr(poll_size, "_FEWEST_RECORDS", 20)
    seconds, most, steps = 400, 0, 0
    with live(redis_url, monkeypatch, partitions=2, windows={"max_input_skew": max_input_skew}) as one:
        one.m.clocks(0)
        one.m._hold = True
        for second in range(seconds):
            one.score(second, second, 1)
            if second % 10 == 9:
                scores = [Score(f"many-{second}-{n}", at(second - n), 0.4, ("x",)) for n in range(10)]
                one.m.scores(A, 0, *scores)
                for partition in (0, 1):
                    one.m.labels_clock(partition, second)
        one.m.clocks(seconds + 60)
        one.m._hold = False
        one.m._send()
        shards = one.m.state(A).shards
        while not one.m.applied(A):
            one.monitor.step()
            steps += 1
            assert steps < 2_000, "it stands still"
            most = max(most, shards.counts_after(one.m.cursor(A, "matured")).get("accepted", 0))
        one.rest()
        assert one.cursors()[1] >= seconds // PANE_S - 1
        assert one.m.check(A) == seconds // PANE_S
    return most


def test_a_backlog_read_at_full_speed_is_bounded_by_the_skew_between_inputs(
    redis_url: str, redis_client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded = most_pending(redis_url, monkeypatch, "50s")
    redis_client.flushdb()
    free = most_pending(redis_url, monkeypatch, "1d")
    # Two rows a second over what is in reach at once: horizon, lateness, a pane, the skew, and a poll of each.
    reach_s = 15 + 4 + PANE_S + 50 + 10 * 10
    assert bounded <= 2 * reach_s
    assert free > 2 * bounded
