import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from stream_calib.calibration.platt import fit_platt


def test_recovers_a_logistic_law() -> None:
    x = np.linspace(-4, 4, 81)
    n = np.full(81, 1e6)
    fit = fit_platt(x, n, n * expit(0.7 * x - 0.3))
    assert fit.slope == pytest.approx(0.7, abs=1e-4)
    assert fit.intercept == pytest.approx(-0.3, abs=1e-4)
    np.testing.assert_allclose(fit.log_odds_at(x), fit.intercept + fit.slope * x)


def test_is_the_optimum_of_the_loss_with_platts_targets() -> None:
    x = np.array([-2.0, -0.5, 1.0, 3.0])
    n, k = np.array([10.0, 20.0, 15.0, 5.0]), np.array([1.0, 9.0, 6.0, 4.0])
    high, low = 21 / 22, 1 / 32
    target = k * high + (n - k) * low

    def loss(parameters: np.ndarray) -> float:
        p = parameters[0] * x + parameters[1]
        return float((n * np.logaddexp(0, p) - target * p).sum())

    best = minimize(loss, np.zeros(2), tol=1e-12).x
    fit = fit_platt(x, n, k)
    np.testing.assert_allclose([fit.slope, fit.intercept], best, atol=1e-5)


def test_separable_data_give_a_finite_fit() -> None:
    fit = fit_platt(np.array([-1.0, 1.0]), np.array([50.0, 50.0]), np.array([0.0, 50.0]))
    np.testing.assert_allclose(expit(fit.log_odds_at(np.array([-1.0, 1.0]))), [1 / 52, 51 / 52], rtol=1e-6)


@pytest.mark.parametrize("positives", [0.0, 40.0])
def test_one_class_gives_a_finite_fit(positives: float) -> None:
    fit = fit_platt(np.array([-1.0, 2.0]), np.array([40.0, 0.0]), np.array([positives, 0.0]))
    assert np.isfinite([fit.slope, fit.intercept]).all()
    assert abs(expit(fit.log_odds_at(np.array([-1.0]))[0]) - positives / 40) < 0.03


@pytest.mark.parametrize("value", [10.0, -2.1, 0.1])
def test_one_distinct_value_gives_its_rate_everywhere(value: float) -> None:
    fit = fit_platt(np.full(3, value), np.array([1e6, 7.0, 1e3]), np.array([2.5e5, 1.0, 300.0]))
    assert fit.slope == pytest.approx(0, abs=1e-9)
    assert expit(fit.intercept) == pytest.approx(250_301 / 1_001_007, abs=1e-5)


def test_extreme_scores_and_a_rare_class_converge() -> None:
    x = np.array([-10.0, -9.975, 0.0, 10.0])
    n, k = np.array([1e9, 5.0, 1e3, 2.0]), np.array([3.0, 0.0, 1.0, 2.0])
    fit = fit_platt(x, n, k)
    rate = expit(fit.log_odds_at(x))
    assert (n * rate).sum() == pytest.approx(k.sum(), rel=0.2)
