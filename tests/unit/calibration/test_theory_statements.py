"""Statements of docs/theory.md that no module has to itself: projection, grid, the price of confirmation."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import expit, rel_entr
from sklearn.isotonic import isotonic_regression

from stream_calib.calibration.grid import BIN_WIDTH, EDGE_LOG_ODDS, locate
from stream_calib.calibration.maps.base_map import BaseMap
from stream_calib.calibration.maps.parts import MapParts
from stream_calib.calibration.maps.served_map import ServedMap

Floats = NDArray[np.float64]

unit = st.floats(0, 1)


# --- isotonic projection


@given(st.lists(st.tuples(unit, unit, st.floats(0.01, 100)), min_size=1, max_size=30))
def test_the_isotonic_projection_comes_nearer_to_every_non_decreasing_truth(
    drawn: list[tuple[float, float, float]],
) -> None:
    """By at least the squared distance that it moves (the projection's obtuse angle)."""
    value, truth, weight = (np.array(column) for column in zip(*drawn, strict=True))
    truth = np.sort(truth)
    projected = isotonic_regression(value, sample_weight=weight)

    def squared(a: Floats, b: Floats) -> float:
        return float((weight * (a - b) ** 2).sum())

    assert squared(projected, truth) + squared(projected, value) <= squared(value, truth) + 1e-9 * weight.sum()
    assert (weight * projected).sum() == pytest.approx((weight * value).sum(), rel=1e-9, abs=1e-12)


def test_the_isotonic_projection_may_move_away_from_a_truth_that_decreases() -> None:
    truth = np.array([0.6, 0.4])
    projected = isotonic_regression(truth.copy())
    assert ((projected - truth) ** 2).sum() > 0


# --- the step of the joint fit


@given(st.integers(0, 2**20), st.floats(0.05, 50), st.floats(0.1, 8), st.booleans())
def test_a_shortened_newton_step_gains_what_bachs_bound_says(
    seed: int, ridge: float, spread: float, exact: bool
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2, (12, 4)).astype(np.float64)
    base, u = rng.normal(0, spread, 12), rng.normal(0, spread, 4)
    n = rng.uniform(0.1, 500, 12)
    k = n * rng.random(12)

    def loss(at: Floats) -> float:
        log_odds = base + x @ at
        return float((n * np.logaddexp(0, log_odds) - k * log_odds).sum() + ridge / 2 * (at**2).sum())

    p = expit(base + x @ u)
    gradient = ridge * u + x.T @ (n * p - k)
    hessian = x.T @ ((n * p * (1 - p))[:, None] * x) + ridge * np.eye(4)
    # A whole Newton step, or the first of conjugate gradients: both have d H d = -d gradient.
    step = -np.linalg.solve(hessian, gradient)
    if not exact:
        step = -gradient * (gradient @ gradient) / (gradient @ hessian @ gradient)
    r, squared = np.abs(x @ step).max(), step @ hessian @ step
    assume(r > 1e-3)
    gain = loss(u) - loss(u + step * np.log1p(r) / r)
    assert gain >= squared * ((1 + r) * np.log1p(r) - r) / r**2 - 1e-9 * (1 + abs(loss(u)))


# --- the grid


def served(slope: float, intercept: float, score: Floats) -> tuple[Floats, Floats]:
    """Served probabilities of scores, and those of the centres of their bins, under a map linear in log-odds."""
    value = expit(slope * EDGE_LOG_ODDS + intercept)
    the_map = ServedMap(MapParts(BaseMap(EDGE_LOG_ODDS, value, 1e-6, 0.0)))
    everyone = np.zeros(len(score), dtype=np.intp)
    return the_map.apply(score, everyone, [()]), the_map.at_centres(locate(score)[0], everyone, [()])


@pytest.mark.parametrize("slope", [0.3, 1.0, 1.7])
@pytest.mark.parametrize("intercept", [-3.0, 0.0, 0.4])
def test_a_bins_centre_is_as_near_to_its_rows_as_the_grid_bound_says(slope: float, intercept: float) -> None:
    score = expit(np.linspace(-9.99, 9.99, 100_001))
    p, centre = served(slope, intercept, score)
    h = BIN_WIDTH * slope
    apart = np.abs(p - centre)
    assert apart.max() <= h / 8
    assert apart.mean() <= h / 16
    extra_loss = rel_entr(p, centre) + rel_entr(1 - p, 1 - centre)  # of labels with these probabilities
    assert extra_loss.max() <= h**2 * np.exp(2 * h) / 32
    assert (apart**2).max() <= h**2 / 64


def test_the_grid_bound_of_a_map_of_slope_1_is_within_what_the_grid_promises() -> None:
    h = BIN_WIDTH
    assert h**2 * np.exp(2 * h) / 32 < 1e-4
    p, centre = served(1.0, 0.0, expit(np.linspace(-1.0, 1.0, 40_001)))
    assert np.abs(p - centre).max() > 0.98 * h / 8  # and the bound is reached


# --- the price of confirmation


@given(st.integers(1, 99), st.integers(-50, 50), st.integers(1, 20))
def test_mean_and_variance_of_what_a_row_gains(f_hundredths: int, r_hundredths: int, parts: int) -> None:
    """Of Z = (Y - f)^2 - (Y - f - s)^2 on a cell of mass mu, 0 elsewhere: mu s (2 r - s), and at most 4 mu s^2 v +
    its squared mean within the cell."""
    f, mu = Fraction(f_hundredths, 100), Fraction(1, 50)
    eta = min(max(f + Fraction(r_hundredths, 100), Fraction(0)), Fraction(1))
    r, s = eta - f, Fraction(parts, 20) * Fraction(r_hundredths, 100)
    gains = {y: (y - f) ** 2 - (y - f - s) ** 2 for y in (0, 1)}
    mean = mu * (eta * gains[1] + (1 - eta) * gains[0])
    square = mu * (eta * gains[1] ** 2 + (1 - eta) * gains[0] ** 2)
    assert mean == mu * s * (2 * r - s)
    assert square == mu * (4 * s**2 * eta * (1 - eta) + (s * (2 * r - s)) ** 2)


@pytest.mark.parametrize(("share", "factor"), [(Fraction(1), Fraction(4)), (Fraction(1, 2), Fraction(16, 9))])
def test_rows_until_the_gain_of_a_cell_at_the_threshold_is_z_standard_errors(share: Fraction, factor: Fraction) -> None:
    """n = (2 / (2 - s / r))^2 z^2 v / (gamma alpha^2): 4 for whole shifts, 1.78 for half ones."""
    gamma, alpha, v, z = 0.02, 0.05, 0.18, 2.33
    s = float(share) * alpha
    mean, deviation = gamma * s * (2 * alpha - s), np.sqrt(gamma * 4 * s**2 * v)
    rows = (z * deviation / mean) ** 2
    assert rows == pytest.approx(float(factor) * z**2 * v / (gamma * alpha**2), rel=1e-12)
