"""Constant scores, one class, rare events, huge counts, cells that come and go, and what is refused."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from stream_calib.drift.residual import SHIFTS, ResidualState, ResidualSums, WatchedCells, advance, log_threshold
from stream_calib.drift.residual_evidence import MOST_LABELLED, pane_evidence
from stream_calib.errors import StateFormatError


def watched_cells(names: Sequence[str] = ("all",), epsilon: float = 0.0, per_pane: float = 1e4) -> WatchedCells:
    cells = len(names)
    return WatchedCells(names, np.zeros(cells, np.intp), np.full(cells, epsilon), np.ones(1), per_pane)


def pane(*rows: tuple[int, float, int, int]) -> ResidualSums:
    """Rows of cell, served, labelled, positives."""
    table = np.array(rows, float).reshape(-1, 4)
    cell, labelled, positives = (table[:, i].astype(np.int64) for i in (0, 2, 3))
    return ResidualSums(cell.astype(np.intp), table[:, 1], labelled, positives)


def alarms_of(watched: WatchedCells, panes: Sequence[ResidualSums], budget_panes: float = 100.0) -> list[float]:
    """Shift of each alarm."""
    state, found = ResidualState(), []
    for sums in panes:
        state, alarms = advance(state, watched, pane_evidence(watched, sums), budget_panes)
        found += [alarm.shift for alarm in alarms]
    return found


@pytest.mark.parametrize("served", [0.0, 1e-4, 0.2, 0.999, 1.0])
@pytest.mark.parametrize("positive", [0, 1])
def test_constant_scores_and_one_class(served: float, positive: int) -> None:
    """An alarm towards the class that comes, where what is served leaves room for it; none where it is certain."""
    n = 100_000
    found = alarms_of(watched_cells(), [pane((0, served, n, n * positive))])
    certain = served == positive
    assert len(found) == (not certain)
    assert all((shift > 0) == bool(positive) for shift in found)


def test_a_billion_labels_of_a_served_certainty_are_no_evidence() -> None:
    watched = watched_cells(per_pane=1e9)
    for served, positives in ((1.0, 10**9), (0.0, 0), (0.98, 10**9), (0.02, 0)):
        sums = pane((0, served, 10**9, positives))
        tolerant = replace(watched, epsilon=np.array([0.02]))
        assert pane_evidence(tolerant, sums).log_ratio.max() <= 0
        assert alarms_of(tolerant, [sums] * 3) == []
        assert len(alarms_of(watched, [sums])) == (0 < served < 1)


def test_a_billion_labels_are_counted_exactly() -> None:
    exact = pane((0, 0.25, 10**9, 25 * 10**7))
    ratio = pane_evidence(watched_cells(), exact).log_ratio[0]
    expected = [1e9 * (0.25 * d - np.log1p(0.25 * np.expm1(d))) for d in SHIFTS]
    assert np.all(ratio <= expected)
    np.testing.assert_allclose(ratio, expected, atol=1.0)
    more = pane((0, 0.25, 10**9, 27 * 10**7))
    assert alarms_of(watched_cells(), [exact] * 3) == []
    assert alarms_of(watched_cells(), [more]) == [0.15]
    assert alarms_of(watched_cells(epsilon=0.021), [more]) == []


def test_a_shift_of_less_than_half_the_smallest_of_the_grid_is_never_found() -> None:
    watched = watched_cells(per_pane=1e9)
    for log_odds, found in ((0.074, 0), (0.078, 1), (-0.074, 0), (-0.078, 1)):
        positives = round(1e9 / (1 + np.exp(-log_odds)))
        assert len(alarms_of(watched, [pane((0, 0.5, 10**9, positives))])) == found


def test_a_count_beyond_exact_sums_is_refused() -> None:
    fits = pane((0, 1.0, MOST_LABELLED, MOST_LABELLED))
    assert pane_evidence(watched_cells(), fits).log_ratio.max() <= 0
    with pytest.raises(ValueError, match=r"cell all has 5,000,000,001 labelled events in one pane.*make panes shorter"):
        pane_evidence(watched_cells(), pane((0, 0.5, MOST_LABELLED, 0), (0, 0.5, 1, 0)))


def test_rare_events_five_times_as_often_are_found_and_the_usual_rate_is_not() -> None:
    rng = np.random.default_rng(4)
    usual = [pane((0, 1e-4, 10_000, rng.binomial(10_000, 1e-4))) for _ in range(200)]
    assert len(alarms_of(watched_cells(), usual)) <= 2  # in two budgets
    often = [pane((0, 1e-4, 10_000, rng.binomial(10_000, 5e-4))) for _ in range(20)]
    assert alarms_of(watched_cells(), often)[:1] in ([1.0], [1.6])


def test_one_event_moves_a_little_and_an_empty_pane_nothing() -> None:
    watched = watched_cells()
    once, alarms = advance(ResidualState(), watched, pane_evidence(watched, pane((0, 0.3, 1, 1))), 100.0)
    assert alarms == ()
    assert once.log_m is not None
    expected = [d - np.log1p(0.3 * np.expm1(d)) for d in SHIFTS]
    np.testing.assert_allclose(once.log_m[0], expected, atol=2.0**-16)
    for empty in (pane(), pane((0, 0.3, 0, 0))):
        assert advance(once, watched, pane_evidence(watched, empty), 100.0) == (once, ())


def test_without_a_rate_of_labels_and_without_cells_nothing_alarms() -> None:
    certain_change = [pane((0, 0.01, 10**6, 10**6))] * 5
    assert log_threshold(watched_cells(per_pane=0.0), 100.0) == np.inf
    assert alarms_of(watched_cells(per_pane=0.0), certain_change) == []
    none = WatchedCells([], np.zeros(0, np.intp), np.zeros(0), np.ones(0), 100.0)
    assert advance(ResidualState(), none, pane_evidence(none, pane()), 100.0) == (ResidualState(), ())


def test_evidence_that_is_not_asked_for_stays_bounded_and_storable() -> None:
    watched = watched_cells(per_pane=0.0)
    state = ResidualState()
    for positives in (10**6, 10**6, 0):
        state, _ = advance(state, watched, pane_evidence(watched, pane((0, 0.01, 10**6, positives))), 100.0)
        assert ResidualState.from_text(state.to_text()) == state


def test_detectors_live_on_by_name_over_snapshots() -> None:
    before = watched_cells(["a", "b", "c"])
    sums = pane((0, 0.2, 100, 30), (1, 0.2, 100, 10), (2, 0.2, 100, 25))
    state, _ = advance(ResidualState(), before, pane_evidence(before, sums), 100.0)
    assert state.log_m is not None
    after = replace(watched_cells(["new", "c", "a"]), epsilon=np.full(3, 0.02))
    next_state, _ = advance(state, after, pane_evidence(after, pane((1, 0.2, 50, 20))), 100.0)
    assert next_state.names == ("new", "c", "a")
    assert next_state.log_m is not None
    assert np.isneginf(next_state.log_m[0]).all()
    np.testing.assert_array_equal(next_state.log_m[2], state.log_m[0])
    added = pane_evidence(after, pane((1, 0.2, 50, 20))).log_ratio[1]
    expected = np.logaddexp(state.log_m[2], np.log(50)) + added
    np.testing.assert_allclose(next_state.log_m[1], expected, atol=2.0**-16)


def test_a_lower_threshold_alone_makes_no_alarm_before_the_cells_next_event() -> None:
    """A new snapshot may know of fewer labels: then M is above A K at once, and there is no event to tell of."""
    before, after = watched_cells(per_pane=1e6), watched_cells(per_pane=1.0)
    state, alarms = advance(ResidualState(), before, pane_evidence(before, pane((0, 0.2, 100, 45))), 100.0)
    assert alarms == ()
    state, alarms = advance(state, after, pane_evidence(after, pane()), 100.0)
    assert alarms == ()
    _, alarms = advance(state, after, pane_evidence(after, pane((0, 0.2, 1, 1))), 100.0)
    assert [alarm.name for alarm in alarms] == ["all"]


# --- what is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": np.zeros(3)}, "2 names, but family (2,), epsilon (3,)"),
        ({"names": ["a", "a"]}, "names repeat"),
        ({"family": np.array([0, 1])}, "family must lie in 0 .. 0"),
        ({"epsilon": np.array([0.0, 1.5])}, "epsilon must lie in 0 .. 1"),
        ({"epsilon": np.array([0.0, np.nan])}, "epsilon must lie in 0 .. 1"),
        ({"phi": np.array([0.9])}, "phi must be finite and at least 1"),
        ({"phi": np.array([np.inf])}, "phi must be finite and at least 1"),
        ({"labelled_per_pane": -1.0}, "labelled_per_pane = -1.0 must be finite"),
        ({"labelled_per_pane": np.nan}, "labelled_per_pane = nan must be finite"),
    ],
)
def test_watched_cells_that_make_no_sense_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        replace(watched_cells(["a", "b"]), **change)  # type: ignore[arg-type]  # wrong values on purpose


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((1, 0.5, 1, 0), "cells must be watched ones, 0 .. 0"),
        ((-1, 0.5, 1, 0), "cells must be watched ones, 0 .. 0"),
        ((0, 1.5, 1, 0), "served probabilities must lie in 0 .. 1"),
        ((0, float("nan"), 1, 0), "served probabilities must lie in 0 .. 1"),
        ((0, 0.5, 1, 2), "positives must lie in 0 .. labelled"),
        ((0, 0.5, -1, -1), "positives must lie in 0 .. labelled"),
    ],
)
def test_sums_that_make_no_sense_are_refused(row: tuple[int, float, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        pane_evidence(watched_cells(), pane(row))


def test_columns_and_cells_that_do_not_fit_are_refused() -> None:
    sums = replace(pane((0, 0.5, 1, 0)), served=np.array([0.5, 0.5]))
    with pytest.raises(ValueError, match=r"columns of different lengths \[1, 2\]"):
        pane_evidence(watched_cells(), sums)
    evidence = pane_evidence(watched_cells(["a", "b"]), pane())
    with pytest.raises(ValueError, match=r"evidence has the shape \(2, 8\), there are 1 watched cells"):
        advance(ResidualState(), watched_cells(), evidence, 100.0)


@pytest.mark.parametrize("text", ["", "{}", "[]", "[1]", '["?"]', json.dumps(["AAAA", 1]), json.dumps(["AAAA", "a"])])
def test_a_text_that_is_no_state_is_refused(text: str) -> None:
    with pytest.raises(StateFormatError, match="stored residual detectors"):
        ResidualState.from_text(text)


def test_values_that_the_step_cannot_have_made_are_not_stored() -> None:
    assert len(base64.b64decode(json.loads(ResidualState(("a",), np.full((1, 8), -1.5)).to_text())[0])) == 24
    for value in (0.1, 200.0, -200.0, np.nan):
        with pytest.raises(ValueError, match="not a multiple of"):
            ResidualState(("a",), np.full((1, 8), value)).to_text()
