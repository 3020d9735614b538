"""Theorem B's bound: valid under every law, at every number of rows; wide enough to accept what is worth it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import binom

from stream_calib.calibration.labelled_cells import LabelledCells
from stream_calib.calibration.multicalibration.confirmation import RoundGains, best_bet, lower_bound, round_gains
from stream_calib.errors import FitError

KAPPA = 1e-6


def gains_of(values: NDArray[np.float64], counts: NDArray[np.float64]) -> RoundGains:
    return RoundGains(values, counts.astype(np.float64), float(counts.sum()))


def most_failures(runs: int, probability: float) -> int:
    """What a binomial count of failures exceeds with probability at most 1e-6."""
    return int(binom.ppf(1 - 1e-6, runs, probability))


def test_gains_are_the_differences_of_squared_errors_row_by_row() -> None:
    cells = LabelledCells(
        [()], np.zeros(3, dtype=np.intp), np.array([1, 2, 3]), np.array([5.0, 3.0, 2.0]), np.array([2.0, 0.0, 2.0])
    )
    before, after = np.array([0.3, 0.5, 0.9]), np.array([0.35, 0.5, 0.8])

    gains = round_gains(cells, before, after, rows=20.0)

    labels = np.array([1, 1, 0, 0, 0, 0, 0, 0, 1, 1])
    f, g = np.repeat(before, [5, 3, 2]), np.repeat(after, [5, 3, 2])
    z = (labels - f) ** 2 - (labels - g) ** 2
    assert gains.mean == pytest.approx(z.sum() / 20, abs=1e-15)
    assert gains.mean_square == pytest.approx((z**2).sum() / 20, abs=1e-15)


def test_the_bound_is_the_root_of_the_product_of_the_factors() -> None:
    random = np.random.default_rng(1)
    values, counts = random.uniform(-0.1, 0.1, 50), random.integers(1, 400, 50).astype(float)
    gains, delta, bet = gains_of(values, counts), 0.025, 1.3

    def product(m: float) -> float:
        return float((counts * np.log1p(bet * (values - m))).sum() - np.log(1 / delta))

    found = lower_bound(gains, bet, 0.1, delta)

    assert found == pytest.approx(brentq(product, -0.1, 0.1, xtol=1e-14), abs=3e-10)
    assert found < gains.mean


def test_rows_without_a_gain_count() -> None:
    values, counts = np.array([0.05, -0.04]), np.array([300.0, 200.0])
    with_zero = gains_of(np.append(values, 0.0), np.append(counts, 9_500.0))
    left_out = RoundGains(values, counts, 10_000.0)

    assert lower_bound(left_out, 2.0, 0.06, 0.05) == pytest.approx(lower_bound(with_zero, 2.0, 0.06, 0.05), abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    high=st.floats(1e-3, 1.0),
    low=st.floats(1e-3, 1.0),
    share=st.one_of(st.sampled_from([0.0, 1.0]), st.floats(1e-9, 1 - 1e-9)),
    rows=st.integers(1, 300),
    bet_share=st.floats(0.01, 1.0),
)
def test_the_exact_error_of_two_point_laws_is_within_delta(
    high: float, low: float, share: float, rows: int, bet_share: float
) -> None:
    """All outcomes of a law with two values are enumerated: P(L > E Z) is known without simulation."""
    largest, delta = max(high, low), 0.05
    bet = bet_share * best_bet(0.0, rows, largest, delta)
    truth = share * high - (1 - share) * low

    ups = np.arange(rows + 1)
    bounds = [lower_bound(gains_of(np.array([high, -low]), np.array([k, rows - k])), bet, largest, delta) for k in ups]

    wrong = np.array(bounds) > truth
    assert float(binom.pmf(ups[wrong], rows, share).sum()) <= delta + 1e-9


@pytest.mark.parametrize(
    ("high", "low", "truth"),
    [
        (0.1, 0.1, 0.0),  # symmetric: the bound's own best case
        (0.1, 1e-4, KAPPA * 0.9),  # a rare large gain hides a common small loss
        (1e-4, 0.1, KAPPA * 0.9),  # a common small gain hides a rare large loss
        (0.1, 2e-6, KAPPA * 0.999),
    ],
)
@pytest.mark.parametrize("rows", [30, 1_000, 40_000])
def test_a_true_fall_below_kappa_is_accepted_with_probability_delta_at_most(
    high: float, low: float, truth: float, rows: int
) -> None:
    runs, delta = 4_000, 0.05
    share = (truth + low) / (high + low)
    mean_square = share * high**2 + (1 - share) * low**2
    bet = best_bet(mean_square, rows, high if high > low else low, delta)
    ups = np.random.default_rng(7).binomial(rows, share, runs)
    distinct, times = np.unique(ups, return_counts=True)

    accepted = sum(
        int(t)
        for k, t in zip(distinct.tolist(), times, strict=True)
        if lower_bound(gains_of(np.array([high, -low]), np.array([k, rows - k])), bet, max(high, low), delta) >= KAPPA
    )

    assert accepted <= most_failures(runs, delta)


def test_a_fall_worth_having_is_accepted_nearly_always() -> None:
    """At twice the rows of the normal quantile sqrt(2 ln(1 / delta)), five cells of mass gamma off by alpha."""
    gamma, alpha, f, delta = 0.02, 0.05, 0.3, 0.025
    fall = 5 * gamma * alpha**2
    mean_square = 5 * gamma * 4 * alpha**2 * f * (1 - f)
    quantile = np.sqrt(2 * np.log(1 / delta)) + 3.0
    rows = int(np.ceil(quantile**2 * mean_square / fall**2))
    bet = best_bet(mean_square, rows, 2 * alpha, delta)
    random = np.random.default_rng(3)
    runs, accepted = 1_000, 0
    patched = random.binomial(rows, 5 * gamma, runs)
    positives = random.binomial(patched, f + alpha)
    gain = np.array([alpha * (2 - 2 * f - alpha), -alpha * (2 * f + alpha)])
    for n, k in zip(patched.tolist(), positives.tolist(), strict=True):
        gains = RoundGains(gain, np.array([k, n - k], dtype=float), float(rows))
        accepted += lower_bound(gains, bet, 2 * alpha, delta) >= KAPPA
    # Mean minus three standard errors reaches the quantile: all but the normal law's lower .13 %, and a margin for the
    # second order of the bound.
    assert accepted >= 980


def test_units_of_many_equal_rows_are_as_many_as_they_are() -> None:
    """Rows that only repeat their unit's outcome carry no proof of their own: with b rows a unit the bound is that of
    the units, and without saying so acceptance of a null would be the rule rather than the exception."""
    b, units, delta, runs = 25, 400, 0.05, 2_000
    gain = np.array([0.1, -0.1])
    ups = np.random.default_rng(5).binomial(units, 0.5, runs)
    bet = best_bet(0.01, units * b, 0.1, delta, b)
    assert bet == pytest.approx(best_bet(0.01, units, 0.1, delta), rel=1e-12)

    def accepted(largest_unit: float, bet: float) -> int:
        found = 0
        for k in ups.tolist():
            gains = gains_of(gain, np.array([k * b, (units - k) * b]))
            found += lower_bound(gains, bet, 0.1, delta, largest_unit) >= KAPPA
        return found

    assert accepted(b, bet) <= most_failures(runs, delta)
    assert accepted(1.0, best_bet(0.01, units * b, 0.1, delta)) > runs * 0.2


def test_a_bound_below_the_range_is_the_range() -> None:
    assert lower_bound(gains_of(np.array([0.1, -0.1]), np.array([1, 2])), 1e-3, 0.1, 0.05) == -0.1


def test_refusals() -> None:
    gains = gains_of(np.array([0.1, -0.1]), np.array([10, 10]))
    with pytest.raises(FitError, match=r"bet of 9\.0 with gains up to 0\.1; take it from best_bet"):
        lower_bound(gains, 9.0, 0.1, 0.05)
    with pytest.raises(FitError, match=r"a gain of 0\.1 beyond the largest possible, 0\.05"):
        lower_bound(gains, 1.0, 0.05, 0.05)
    none = LabelledCells([()], np.zeros(0, dtype=np.intp), np.zeros(0, dtype=int), np.zeros(0), np.zeros(0))
    with pytest.raises(FitError, match="no labelled rows to confirm a round on"):
        round_gains(none, np.zeros(0), np.zeros(0), 0.0)
