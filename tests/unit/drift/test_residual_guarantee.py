"""False alarms stay within the budget, where docs/drift.md says so; and each assumption is needed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import expit

from stream_calib.drift.residual import SHIFTS, ResidualState, ResidualSums, WatchedCells, advance, log_mean
from stream_calib.drift.residual_evidence import pane_evidence

Floats = NDArray[np.float64]


def watched_cells(cells: int, epsilon: float, phi: float, per_pane: float = 1.0) -> WatchedCells:
    names = [str(i) for i in range(cells)]
    return WatchedCells(names, np.zeros(cells, np.intp), np.full(cells, epsilon), np.array([phi]), per_pane)


def mean_of_exponential(served: Floats, law: Floats, epsilon: float, phi: float) -> Floats:
    """(shifts,) E[exp(log ratio)] of a pane of events (k,) whose labels have the joint law (2^k,). Exact: each outcome
    is a cell of its own."""
    outcomes = np.array(list(itertools.product((0, 1), repeat=len(served))), np.int64)
    cell = np.repeat(np.arange(len(outcomes)), len(served))
    sums = ResidualSums(cell, np.tile(served, len(outcomes)), np.ones_like(cell), outcomes.ravel())
    ratio = pane_evidence(watched_cells(len(outcomes), epsilon, phi), sums).log_ratio
    return np.asarray(law @ np.exp(ratio))


def independent(probability: Floats) -> Floats:
    outcomes = np.array(list(itertools.product((0, 1), repeat=len(probability))))
    return np.asarray(np.where(outcomes == 1, probability, 1 - probability).prod(axis=1))


shares = st.floats(0, 1)


@given(st.lists(st.tuples(shares, st.floats(-1, 1)), min_size=1, max_size=5), st.floats(0, 0.3))
@settings(max_examples=100, deadline=None)
def test_evidence_does_not_grow_while_labels_are_within_epsilon_of_what_is_served(
    events: list[tuple[float, float]], epsilon: float
) -> None:
    served = np.array([f for f, _ in events])
    truth = np.clip(served + epsilon * np.array([off for _, off in events]), 0, 1)
    assert mean_of_exponential(served, independent(truth), epsilon, 1.0).max() <= 1 + 1e-12


@given(st.integers(2, 4).flatmap(lambda k: st.lists(st.floats(0.001, 1), min_size=2**k, max_size=2**k)))
@settings(max_examples=100, deadline=None)
def test_nor_in_clusters_of_up_to_phi_whatever_the_dependence(weights: list[float]) -> None:
    law = np.array(weights) / sum(weights)
    size = len(weights).bit_length() - 1
    outcomes = np.array(list(itertools.product((0, 1), repeat=size)))
    assert mean_of_exponential(law @ outcomes, law, 0.0, float(size)).max() <= 1 + 1e-12


columns = st.lists(st.integers(-20 << 16, 20 << 16), min_size=len(SHIFTS), max_size=len(SHIFTS))


@given(st.lists(shares | st.floats(0, 0.06), min_size=1, max_size=5), columns)
@settings(max_examples=100, deadline=None)
def test_the_mean_over_shifts_grows_by_the_number_of_events_at_most_whatever_their_base_rates(
    served: list[float], before: list[int]
) -> None:
    """From any state, so also from one of other base rates, of which other shifts have their evidence."""
    outcomes = np.array(list(itertools.product((0, 1), repeat=len(served))), np.int64)
    cell = np.repeat(np.arange(len(outcomes)), len(served))
    sums = ResidualSums(cell, np.tile(served, len(outcomes)), np.ones_like(cell), outcomes.ravel())
    watched = watched_cells(len(outcomes), 0.0, 1.0)
    log_m = np.tile(np.array(before) / (1 << 16), (len(outcomes), 1))
    state = ResidualState(tuple(watched.names), log_m)
    after, alarms = advance(state, watched, pane_evidence(watched, sums), 1e300)
    assert alarms == ()
    grown = independent(np.array(served)) @ np.exp(log_mean(after.rows))
    allowed = np.exp(log_mean(log_m[:1])[0]) + len(served)
    assert grown <= allowed * (1 + 1e-12)


def test_a_probability_beyond_epsilon_and_a_cluster_beyond_phi_let_it_grow() -> None:
    served = np.full(3, 0.3)
    off = mean_of_exponential(served, independent(served + 0.06), 0.05, 1.0)
    assert off[SHIFTS.index(0.15)] > 1.001
    one_label = np.array([0.7, 0, 0, 0, 0, 0, 0, 0.3])
    assert mean_of_exponential(served, one_label, 0.0, 2.0).max() > 1.05


# --- the budget, simulated: labels for 200 false alarms


CELLS, PER_CELL, BUDGET_EVENTS, PANES = 20, 50, 2_000, 400
EVENTS = CELLS * PER_CELL * PANES
LEVELS = expit(np.linspace(-3, 1, 8))


def count_alarms(epsilon: float, phi: float, off: float, cluster: int = 1, shock: float = 0.0) -> int:
    """Alarms among `EVENTS` events whose probability is `off` beside what is served, in clusters of one label each,
    with a shock in log-odds that a pane's events share."""
    rng = np.random.default_rng(20)
    watched = watched_cells(CELLS, epsilon, phi, per_pane=CELLS * PER_CELL)
    state, alarms = ResidualState(), 0
    cell = np.repeat(np.arange(CELLS), len(LEVELS))
    served = np.tile(LEVELS, CELLS)
    for _ in range(PANES):
        clusters = rng.multinomial(PER_CELL // cluster, np.full(len(LEVELS), 1 / len(LEVELS)), CELLS).ravel()
        truth = expit(np.log(served / (1 - served)) + rng.normal(0.0, shock)) + off
        positives = rng.binomial(clusters, np.clip(truth, 0, 1)) * cluster
        sums = ResidualSums(cell, served, clusters * cluster, positives)
        state, new = advance(state, watched, pane_evidence(watched, sums), BUDGET_EVENTS / (CELLS * PER_CELL))
        alarms += len(new)
    return alarms


ALLOWED = EVENTS // BUDGET_EVENTS


def test_false_alarms_are_within_the_budget_and_not_a_tenth_of_it() -> None:
    assert ALLOWED // 10 < count_alarms(epsilon=0.0, phi=1.0, off=0.0) <= ALLOWED


@pytest.mark.parametrize("side", [1, -1])
def test_they_stay_within_it_where_the_truth_is_off_by_epsilon_everywhere(side: int) -> None:
    assert count_alarms(epsilon=0.03, phi=1.0, off=0.03 * side) <= ALLOWED
    assert count_alarms(epsilon=0.0, phi=1.0, off=0.03 * side) > 1.5 * ALLOWED


def test_phi_keeps_it_for_clusters_and_for_shared_shocks() -> None:
    assert count_alarms(epsilon=0.0, phi=5.0, off=0.0, cluster=5) <= ALLOWED
    assert count_alarms(epsilon=0.0, phi=1.0, off=0.0, cluster=5) > 2 * ALLOWED
    variance = float((LEVELS * (1 - LEVELS)).mean())
    phi = 1 + PER_CELL * 0.3**2 * variance
    assert count_alarms(epsilon=0.0, phi=phi, off=0.0, shock=0.3) <= ALLOWED
    assert count_alarms(epsilon=0.0, phi=1.0, off=0.0, shock=0.3) > ALLOWED
