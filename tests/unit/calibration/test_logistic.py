import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from stream_calib.calibration.logistic import fit_logistic
from stream_calib.errors import FitError


def drawn(
    seed: int, n: int, coefficients: list[float]
) -> tuple[list[NDArray[np.float64]], NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, len(coefficients)))
    label = (rng.random(n) < 1 / (1 + np.exp(-x @ coefficients + 0.5))).astype(np.float64)
    return [np.ones(n), *x.T], label, rng.uniform(0.1, 3, n)


def test_is_scikit_learns_logistic_regression() -> None:
    columns, label, weight = drawn(1, 500, [1.0, -0.5, 0.2])
    penalty = np.diag([0.0, 2.0, 2.0, 2.0])
    fit = fit_logistic(columns, weight, weight * label, penalty=penalty, at_least_0=[False] * 4)
    theirs = LogisticRegression(C=0.5, tol=1e-12, solver="newton-cholesky").fit(
        np.stack(columns[1:], axis=1), label, weight
    )
    np.testing.assert_allclose(fit.coefficients, [theirs.intercept_[0], *theirs.coef_[0]], rtol=1e-7)
    assert not fit.held.any()


@given(st.integers(0, 10_000), st.lists(st.floats(-2, 2), min_size=2, max_size=4), st.floats(0.01, 10))
@settings(max_examples=40)
def test_no_bounded_optimiser_does_better(seed: int, coefficients: list[float], ridge: float) -> None:
    columns, label, weight = drawn(seed, 60, coefficients)
    size = len(columns)
    penalty = ridge * np.eye(size)
    bounded = [False] + [True] * (size - 1)
    fit = fit_logistic(columns, weight, weight * label, penalty=penalty, at_least_0=bounded)

    def loss(c: NDArray[np.float64]) -> float:
        log_odds = np.stack(columns, axis=1) @ c
        return float((weight * (np.logaddexp(0, log_odds) - label * log_odds)).sum() + ridge / 2 * (c**2).sum())

    best = minimize(loss, np.zeros(size), method="L-BFGS-B", bounds=[(0 if b else None, None) for b in bounded])
    assert loss(fit.coefficients) <= best.fun * (1 + 1e-10)
    assert (fit.coefficients[1:] >= 0).all()
    assert (fit.coefficients[fit.held] == 0).all()
    # Held ones would fall, the others are where the gradient vanishes.
    p = 1 / (1 + np.exp(-np.stack(columns, axis=1) @ fit.coefficients))
    gradient = penalty @ fit.coefficients - np.stack(columns) @ (weight * (label - p))
    assert (gradient[fit.held] >= 0).all()
    np.testing.assert_allclose(gradient[~fit.held], 0, atol=1e-5)


def test_two_features_that_are_the_same_share_their_weight() -> None:
    columns, label, weight = drawn(2, 300, [1.0])
    alone = fit_logistic(columns, weight, weight * label, penalty=np.diag([0.0, 1e-6]), at_least_0=[False] * 2)
    twice = fit_logistic(
        [*columns, columns[1]], weight, weight * label, penalty=np.diag([0.0, 2e-6, 2e-6]), at_least_0=[False] * 3
    )
    np.testing.assert_allclose(twice.coefficients[1:], alone.coefficients[1] / 2, rtol=1e-5)


def test_separated_classes_end_where_the_penalty_says() -> None:
    x = np.array([-1.0, -1.0, 1.0, 1.0])
    label = np.array([0.0, 0.0, 1.0, 1.0])
    fit = fit_logistic([x], np.ones(4), label, penalty=np.array([[1e-6]]), at_least_0=[True])
    # 4 / (1 + e^c) = 1e-6 c.
    c = fit.coefficients[0]
    assert 4 / (1 + np.exp(c)) == pytest.approx(1e-6 * c, rel=1e-6)


def test_what_has_no_minimum_is_refused() -> None:
    x = np.array([-1.0, 1.0])
    with pytest.raises(FitError, match="did not end within 200 Newton steps"):
        fit_logistic([x], np.ones(2), np.array([0.0, 1.0]), penalty=np.zeros((1, 1)), at_least_0=[False])
