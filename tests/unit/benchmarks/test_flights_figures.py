"""What the flights benchmark calls a half of the year, a goal met, and an alarm within its budget."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.flights import document
from benchmarks.flights_drift import Switch
from benchmarks.flights_figures import PARTS, Goal, Worth, alarms, worth
from stream_calib.alerts.model import Alert, AlertState, make_alert
from stream_calib.config_refits import DriftSection
from stream_calib.demo.flights import load_flights
from stream_calib.drift.residual import WatchedCells
from stream_calib.events.contracts import ModelKey


def _alert(pane: int, state: AlertState) -> Alert:
    return make_alert(ModelKey.of("m", "1"), "g", "residual", state, pane=pane, since_ms=0, diagnosis="")


def test_the_halves_are_as_long_as_each_other_and_make_the_year() -> None:
    (first, end), (one, middle), (other, last) = PARTS.values()
    assert (first, end) == (one, last)
    assert middle == other
    assert middle - first == last - other


def test_the_raw_scores_are_worth_what_is_given_for_them() -> None:
    flights = load_flights()
    found = worth(flights, flights.score)
    assert found["year"].log_loss == pytest.approx(0.52389, abs=5e-6)
    assert found["year"].worst_group_error == pytest.approx(13.1, abs=0.05)
    rows = found["first half"].log_loss, found["second half"].log_loss
    assert min(rows) < found["year"].log_loss < max(rows)


def test_of_a_part_of_the_year_the_other_half_is_left_out() -> None:
    flights = load_flights()
    assert set(worth(flights, flights.score[: flights.days()[99].scores.stop])) == {"year", "first half"}


@pytest.mark.parametrize(
    ("found", "met"),
    [
        (Worth(0.5035, 2.6), True),
        (Worth(0.50351, 2.0), False),
        (Worth(0.5, 2.61), False),
    ],
)
def test_a_goal_is_met_by_both_figures_or_not(found: Worth, met: bool) -> None:
    assert Goal(0.5035, 2.6).met(found) is met


def test_an_alarm_counts_when_it_opens() -> None:
    events = [_alert(3, "open"), _alert(4, "update"), _alert(9, "close"), _alert(20, "open")]
    found = {one.detector: (one.opened, one.budget) for one in alarms(events, DriftSection(), 60)}
    assert found == {
        "psi": (0, 2.0),
        "residual": (2, 2.0),
        "label_selection": (0, 2.0),
        "residual_page": (0, 60 / 365),
    }


def test_goals_are_for_the_whole_year_alone() -> None:
    raw = {"raw scores": {"year": Worth(0.52, 13.0)}}
    assert document(raw, {}, 60)["goals"] == {}


def test_switches_leave_out_what_they_say() -> None:
    watched = WatchedCells(["a"], np.array([0]), np.array([0.02]), np.array([3.0]), 10.0)
    neither = Switch("neither", phi=False, epsilon=False).applied(watched, 0.005)
    assert (neither.phi.tolist(), neither.epsilon.tolist()) == ([1.0], [0.005])
    assert Switch("both", phi=True, epsilon=True).applied(watched, 0.005) is watched
