from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.drift.residual import (
    SHIFTS,
    ResidualAlarm,
    ResidualState,
    ResidualSums,
    WatchedCells,
    advance,
    log_threshold,
)
from stream_calib.drift.residual_evidence import pane_evidence

LATTICE = 2.0**-16
Rows = list[tuple[int, float, int, int]]
"""cell, served, labelled, positives"""


def watched_cells(
    cells: int = 3, epsilon: float = 0.0, phi: float = 1.0, per_pane: float = 100.0, prefix: str = "group"
) -> WatchedCells:
    """One family."""
    names = [f"{prefix}={i}" for i in range(cells)]
    return WatchedCells(names, np.zeros(cells, np.intp), np.full(cells, epsilon), np.array([phi]), per_pane)


def sums_of(rows: Rows) -> ResidualSums:
    cell, served, labelled, positives = zip(*rows, strict=True) if rows else ((), (), (), ())
    return ResidualSums(
        np.array(cell, np.intp), np.array(served, float), np.array(labelled, np.int64), np.array(positives, np.int64)
    )


def moved(
    watched: WatchedCells, panes: list[Rows], budget_panes: float = 1e4
) -> tuple[ResidualState, list[tuple[int, ResidualAlarm]]]:
    """The last state, and the alarms with the number of their pane."""
    state, alarms = ResidualState(), []
    for number, rows in enumerate(panes):
        state, new = advance(state, watched, pane_evidence(watched, sums_of(rows)), budget_panes)
        alarms += [(number, alarm) for alarm in new]
    return state, alarms


# --- golden values: the formula of the module, event by event, in plain numbers


def plain_ratio(rows: Rows, cell: int, shift: float, epsilon: float, phi: float) -> float:
    terms = []
    for of_cell, served, labelled, positives in rows:
        if of_cell == cell:
            f = max(served + epsilon, 1e-6) if shift > 0 else min(served - epsilon, 1 - 1e-6)
            f = min(max(f, 0.0), 1.0)
            cost = math.log(1 + f * (math.exp(shift) - 1))
            terms += [shift - cost] * positives + [-cost] * (labelled - positives)
    return math.fsum(terms) / phi


PANES: list[Rows] = [
    [(0, 0.2, 10, 3), (0, 0.35, 4, 1), (1, 0.0004, 900, 2)],
    [(2, 0.97, 12, 9), (1, 0.0, 20_000, 1), (2, 1.0, 20_000, 19_999)],
    [],
    [(0, 0.2, 7, 5), (1, 0.0004, 400, 3), (1, 0.05, 1, 1), (2, 0.97, 3, 3)],
]


def plain_log_m(cell: int, shift: float, epsilon: float, phi: float) -> float:
    m = 0.0
    for rows in PANES:
        n = sum(row[2] for row in rows if row[0] == cell)
        m = (m + n) * math.exp(plain_ratio(rows, cell, shift, epsilon, phi))
    return math.log(m)


@pytest.mark.parametrize(("epsilon", "phi"), [(0.0, 1.0), (0.03, 1.0), (0.001, 2.5)])
def test_log_m_is_that_of_the_formula_counted_event_by_event(epsilon: float, phi: float) -> None:
    watched = watched_cells(epsilon=epsilon, phi=phi)
    state, alarms = moved(watched, PANES, budget_panes=1e9)
    assert alarms == []
    expected = [[plain_log_m(cell, shift, epsilon, phi) for shift in SHIFTS] for cell in range(3)]
    assert state.log_m is not None
    below = np.array(expected) - state.log_m
    assert below.min() > -1e-9
    assert below.max() < len(PANES) * LATTICE + 1e-6


def test_the_alarm_is_the_mean_over_shifts_against_a_times_k() -> None:
    """By hand: one cell, one pane of n events, so M_d = n exp(l_d)."""
    rows: Rows = [(0, 0.2, 60, 32)]
    mean = math.fsum(60 * math.exp(plain_ratio(rows, 0, shift, 0.0, 1.0)) for shift in SHIFTS) / 8
    largest = max(SHIFTS, key=lambda shift: plain_ratio(rows, 0, shift, 0.0, 1.0))
    for families, below in ((1, 0.999), (1, 1.001), (4, 0.999), (4, 1.001)):
        watched = replace(watched_cells(1), phi=np.ones(families), labelled_per_pane=mean / families / 50)
        assert log_threshold(watched, 50) == pytest.approx(math.log(mean), abs=1e-12)
        state, alarms = moved(watched, [rows], budget_panes=50 * below)
        if below > 1:
            assert alarms == []
            continue
        ((_, alarm),) = alarms
        assert (alarm.cell, alarm.name, alarm.shift) == (0, "group=0", largest)
        assert alarm.log_evidence == pytest.approx(-math.log(below), abs=1e-4)
        assert state.log_m is not None
        assert np.isneginf(state.log_m).all()


def test_only_the_cell_that_alarms_starts_again_and_the_other_budget_goes_on() -> None:
    watched = watched_cells(2, per_pane=10.0)
    rows: Rows = [(0, 0.2, 300, 120), (1, 0.2, 300, 60)]
    evidence = pane_evidence(watched, sums_of(rows))
    refit, refit_alarms = advance(ResidualState(), watched, evidence, 1e3)
    page, page_alarms = advance(ResidualState(), watched, evidence, 1e30)
    assert [alarm.cell for alarm in refit_alarms] == [0]
    assert page_alarms == ()
    assert refit.log_m is not None
    assert page.log_m is not None
    assert np.isneginf(refit.log_m[0]).all()
    np.testing.assert_array_equal(refit.log_m[1], page.log_m[1])
    assert page.log_m[0].max() > 30


# --- what cannot change a bit


pairs = st.tuples(st.integers(0, 4), st.floats(0, 1), st.integers(0, 10**8), st.floats(0, 1), st.floats(0, 1))


@given(st.lists(pairs, max_size=30), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_neither_order_nor_partition_of_rows_changes_a_bit(
    drawn: list[tuple[int, float, int, float, float]], random: Random
) -> None:
    watched = watched_cells(5, epsilon=0.01, phi=1.3)
    whole: Rows = [(cell, served, n, int(n * share)) for cell, served, n, share, _ in drawn]
    parted: Rows = []
    for (cell, served, n, positives), (*_, part) in zip(whole, drawn, strict=True):
        first = int(n * part)
        of_first = min(first, positives)
        parted += [(cell, served, first, of_first), (cell, served, n - first, positives - of_first)]
    random.shuffle(parted)
    one, other = (pane_evidence(watched, sums_of(rows)) for rows in (whole, parted))
    np.testing.assert_array_equal(one.labelled, other.labelled)
    np.testing.assert_array_equal(one.log_ratio, other.log_ratio)


@given(
    st.lists(st.lists(pairs, max_size=6), min_size=1, max_size=6),
    st.text(max_size=12),
)
@settings(max_examples=60, deadline=None)
def test_a_state_is_exactly_its_text(drawn: list[list[tuple[int, float, int, float, float]]], prefix: str) -> None:
    watched = watched_cells(5, prefix=prefix)
    panes: list[Rows] = [[(c, f, n, int(n * share)) for c, f, n, share, _ in pane] for pane in drawn]
    state, _ = moved(watched, panes, budget_panes=1e12)
    stored = ResidualState.from_text(state.to_text())
    assert stored == state
    assert stored.names == tuple(watched.names)
    rows: Rows = [(0, 0.5, 3, 3)]
    evidence = pane_evidence(watched, sums_of(rows))
    assert advance(stored, watched, evidence, 5.0) == advance(state, watched, evidence, 5.0)


def test_the_text_of_561_cells_is_short_and_that_of_no_cells_too() -> None:
    watched = watched_cells(561)
    state, _ = moved(watched, [[(i, 0.3, 5, 2) for i in range(561)]])
    names = sum(len(name) + 3 for name in watched.names)
    assert len(state.to_text()) <= 561 * 32 + names + 10
    assert ResidualState.from_text(ResidualState().to_text()) == ResidualState()
    assert ResidualState().to_text() == '[""]'
