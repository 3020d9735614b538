"""When a fault would have been noticed, from two outcomes of one policy."""

from __future__ import annotations

from typing import Any

import pytest

from stream_calib.backtest.outcome import AlarmFigures, DayFigures, PolicyOutcome, RefitFigures, Sums
from stream_calib.backtest.what_if.detection import detect
from stream_calib.backtest.what_if.faults import parse_scenario
from stream_calib.backtest.what_if.injection import inject_all
from tests.unit.backtest.made_histories import FIRST_PANE, HOUR_MS, configuration, drawn_history

CONFIG = configuration()
SCENARIO = parse_scenario("outage from=2013-06-03T12:00", CONFIG)
FAULT = FIRST_PANE + 60
STEP_PANES = 26
"""A pane is decided its own end, the horizon of 24 h and the lateness of labels of 1 h later."""


def alarm(pane: int, kind: str, *groups: str, state: Any = "open") -> AlarmFigures:
    return AlarmFigures(f"{kind}-{pane}", kind, state, pane, pane * HOUR_MS, f"something of {groups}", list(groups))


def refit(pane: int, version: str | None, outcome: str = "published") -> RefitFigures:
    return RefitFigures(pane, "structure", "age", outcome, version, [], None, None, None, None, "")


def outcome(alarms: list[AlarmFigures], refits: list[RefitFigures], losses: dict[int, float]) -> PolicyOutcome:
    nothing = Sums(0, 0, 0, 0, 0)
    days = [
        DayFigures(
            15857 + day, 100, 0, 0, nothing, Sums(0 if loss < 0 else 100, 20, 20, max(loss, 0), 1), [], [], 0, None
        )
        for day, loss in losses.items()
    ]
    return PolicyOutcome("current", {}, "", "", "cold", 15857, days, [], alarms, refits, 0, 0, 0.5, 0.5, None, "", 0.0)


def test_what_the_untouched_history_has_too_has_not_noticed_the_fault() -> None:
    before = alarm(FAULT - 40, "residual", "carrier UA")
    shared = alarm(FAULT + 5, "residual", "carrier UA")
    later = alarm(FAULT + 50, "residual", "carrier B6")
    said_of_refits = alarm(FAULT + 1, "refit_refused")
    closed = alarm(FAULT + 2, "label_outage", state="close")
    found = alarm(FAULT + 7, "residual", "carrier UA", "carrier B6", state="update")
    untouched = outcome([before, shared, later], [refit(FAULT + 3, "1-aa")], {0: 50, 2: 50, 3: 40, 4: 60})
    injected = outcome(
        [before, said_of_refits, closed, shared, found, later],
        [refit(FAULT + 3, "1-aa"), refit(FAULT + 4, None, "refused"), refit(FAULT + 9, "2-bb")],
        {0: 50, 2: 70, 3: 60, 4: 80},
    )
    made = detect(untouched, injected, SCENARIO, drawn_history(5, 1, 1), CONFIG)
    assert made.noticed_ms == (FAULT + 7 + STEP_PANES) * HOUR_MS
    assert made.noticed_by == f"residual: {found.what}"
    assert made.refit_ms == (FAULT + 9 + STEP_PANES) * HOUR_MS
    # The fault begins in the middle of day 2, so days 3 and 4 count.
    assert (made.log_loss_untouched, made.log_loss) == (0.5, 0.7)
    assert made.injected == "no labels for all events, from 2013-06-03 12:00"
    assert made.from_ms == SCENARIO.from_ms == FAULT * HOUR_MS


def test_scores_are_seen_before_their_labels_are_final() -> None:
    """PSI of a step looks at the panes up to the horizon behind the pane that is decided."""
    seen, too_early = alarm(FAULT - 24, "psi", "all"), alarm(FAULT - 25, "psi", "all")
    nothing = outcome([], [], {})
    history = drawn_history(5, 1, 1)
    assert detect(nothing, outcome([too_early], [], {}), SCENARIO, history, CONFIG).noticed_ms is None
    made = detect(nothing, outcome([seen], [], {}), SCENARIO, history, CONFIG)
    assert made.noticed_ms == (FAULT - 24 + STEP_PANES) * HOUR_MS


def test_what_is_noticed_earlier_than_in_the_untouched_history_counts() -> None:
    untouched = outcome([alarm(FAULT + 30, "label_outage")], [], {})
    injected = outcome([alarm(FAULT + 2, "label_outage")], [], {})
    made = detect(untouched, injected, SCENARIO, drawn_history(5, 1, 1), CONFIG)
    assert made.noticed_ms == (FAULT + 2 + STEP_PANES) * HOUR_MS


def test_labels_that_come_late_let_everything_be_noticed_late() -> None:
    history = drawn_history(80, 2, 1)
    delayed = inject_all(history, parse_scenario("delay by=10h from=2013-06-03T12:00", CONFIG)).history
    made = detect(outcome([], [], {}), outcome([alarm(FAULT, "psi")], [], {}), SCENARIO, delayed, CONFIG, ["said"])
    assert made.notes == ["said"]
    assert made.noticed_ms == (FAULT + STEP_PANES + 10) * HOUR_MS


def test_never_noticed_and_no_labels_left() -> None:
    made = detect(outcome([], [], {3: 40}), outcome([], [], {3: -1}), SCENARIO, drawn_history(5, 1, 1), CONFIG)
    assert (made.noticed_ms, made.noticed_by, made.refit_ms) == (None, None, None)
    assert made.log_loss_untouched is None
    assert made.log_loss is None


def test_losses_are_of_days_that_have_labels_in_both() -> None:
    untouched, injected = outcome([], [], {3: 40, 4: 60, 5: 80}), outcome([], [], {3: -1, 4: 70, 5: 90})
    made = detect(untouched, injected, SCENARIO, drawn_history(5, 1, 1), CONFIG)
    assert made.log_loss_untouched == pytest.approx(0.7)
    assert made.log_loss == pytest.approx(0.8)
