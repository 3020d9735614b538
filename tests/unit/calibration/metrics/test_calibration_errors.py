from typing import get_args

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.calibration import calibration_curve

from stream_calib.calibration import metrics
from stream_calib.calibration.metrics.probability_bins import Bins


def test_ece_by_hand() -> None:
    label, p = [0, 0, 0, 1, 1, 1, 1, 0, 1, 1], [0.1] * 4 + [0.6] * 6
    expected = 0.4 * abs(0.25 - 0.1) + 0.6 * abs(5 / 6 - 0.6)
    assert metrics.ece(label, p) == pytest.approx(expected)
    assert metrics.ece(label, p, bins="width", n_bins=10) == pytest.approx(expected)
    assert metrics.ece_of_counts([0.1, 0.6], [4, 6], [1, 5]) == pytest.approx(expected)


def test_bins_of_equal_width_and_of_equal_mass_differ() -> None:
    p = np.array([0.01, 0.02, 0.03, 0.04, 0.9, 0.95, 0.97, 1.0])
    label = np.array([0, 0, 1, 1, 1, 1, 1, 1])
    narrow = abs(0.5 - 0.025) * 0.5 + abs(1 - p[4:].mean()) * 0.5
    assert metrics.ece(label, p, n_bins=2, bins="width") == pytest.approx(narrow)
    by_mass = np.abs(label.reshape(4, 2).mean(1) - p.reshape(4, 2).mean(1)).mean()
    assert metrics.ece(label, p, n_bins=4, bins="mass") == pytest.approx(by_mass)


def test_bins_of_equal_mass_never_split_a_probability() -> None:
    p = np.repeat([0.2, 0.3, 0.4], [90, 5, 5])
    curve = metrics.reliability_curve(np.arange(100) % 2, p, n_bins=10)
    assert curve.labelled.tolist() == [90.0, 10.0]


def test_a_last_probability_of_next_to_no_weight_makes_no_bin_too_many() -> None:
    weight = np.append(np.full(10, 1e9), 1e-9)
    curve = metrics.reliability_curve(np.arange(11) % 2, np.arange(11) / 12, weight, n_bins=5)
    assert len(curve.labelled) == 5


def test_a_perfect_calibrator_shows_what_noise_alone_gives() -> None:
    rng = np.random.default_rng(4)
    p = rng.beta(1.5, 5, 1270)
    shown = np.mean([metrics.ece(rng.random(1270) < p, p) for _ in range(200)])
    assert metrics.ece_of_perfect(p) == pytest.approx(shown, rel=0.06)
    assert metrics.ece_of_perfect(p) == pytest.approx(0.034, abs=0.002)
    assert metrics.ece_of_perfect(rng.beta(1.5, 5, 20_000)) == pytest.approx(0.009, abs=0.001)


def test_debiased_squared_ece_is_right_on_average_for_small_bins() -> None:
    rng = np.random.default_rng(5)
    p = np.repeat(np.linspace(0.1, 0.8, 15), 20)
    perfect = [metrics.debiased_squared_ece(rng.random(300) < p, p) for _ in range(2000)]
    shifted = [metrics.debiased_squared_ece(rng.random(300) < p + 0.1, p) for _ in range(2000)]
    assert abs(np.mean(perfect)) < 3 * np.std(perfect) / np.sqrt(2000)
    assert abs(np.mean(shifted) - 0.01) < 3 * np.std(shifted) / np.sqrt(2000)


def test_debiased_squared_ece_by_hand() -> None:
    expected = 0.4 * ((0.25 - 0.1) ** 2 - 0.25 * 0.75 / 3) + 0.6 * ((5 / 6 - 0.6) ** 2 - 5 / 36 / 5)
    assert metrics.debiased_squared_ece_of_counts([0.1, 0.6], [4, 6], [1, 5]) == pytest.approx(expected)
    weighted = metrics.debiased_squared_ece([0, 0, 0, 1, 1, 1, 1, 0, 1, 1], [0.1] * 4 + [0.6] * 6, [7.0] * 10)
    assert weighted == pytest.approx(expected)


def test_a_single_row_in_a_bin_has_no_debiased_error() -> None:
    assert metrics.debiased_squared_ece([1, 0], [0.1, 0.9]) == 0.0


def test_reliability_curve_has_the_exact_binomial_bounds_for_all_bins_together() -> None:
    label = np.concatenate([np.arange(40) < 3, np.arange(60) < 60])
    curve = metrics.reliability_curve(label, np.repeat([0.1, 0.9], [40, 60]), confidence=0.9)
    np.testing.assert_allclose(curve.mean_probability, [0.1, 0.9])
    np.testing.assert_allclose(curve.rate, [3 / 40, 1.0])
    for i, (k, n) in enumerate([(3, 40), (60, 60)]):
        exact = binomtest(k, n).proportion_ci(confidence_level=0.95, method="exact")
        assert curve.lower[i] == pytest.approx(exact.low)
        assert curve.upper[i] == pytest.approx(exact.high)


def test_equal_weights_leave_the_curve_as_it_is() -> None:
    rng = np.random.default_rng(6)
    p = rng.random(200)
    label = rng.random(200) < p
    plain, weighted = metrics.reliability_curve(label, p), metrics.reliability_curve(label, p, np.full(200, 3.0))
    np.testing.assert_allclose(weighted.upper, plain.upper)
    np.testing.assert_allclose(weighted.lower, plain.lower)
    np.testing.assert_allclose(weighted.labelled, plain.labelled * 3)


@pytest.mark.parametrize("step", [20, 1000])
def test_bins_of_equal_width_are_those_of_scikit_learn(step: int) -> None:
    # Steps of 20 put many probabilities on the edges of the bins.
    rng = np.random.default_rng(12)
    p = rng.integers(0, step + 1, 3000) / step
    y = rng.random(3000) < p
    rate, mean_probability = calibration_curve(y, p, n_bins=10, strategy="uniform")
    curve = metrics.reliability_curve(y, p, n_bins=10, bins="width")
    np.testing.assert_allclose(curve.rate, rate)
    np.testing.assert_allclose(curve.mean_probability, mean_probability)


def test_bins_of_equal_mass_are_those_of_scikit_learn_where_nothing_is_tied() -> None:
    rng = np.random.default_rng(13)
    p = rng.random(3000)
    y = rng.random(3000) < p
    rate, mean_probability = calibration_curve(y, p, n_bins=10, strategy="quantile")
    curve = metrics.reliability_curve(y, p, n_bins=10)
    np.testing.assert_allclose(curve.rate, rate)
    np.testing.assert_allclose(curve.mean_probability, mean_probability)


@pytest.mark.parametrize("bins", get_args(Bins))
def test_all_bands_of_the_reliability_curve_hold_together_as_often_as_stated(bins: Bins) -> None:
    rng = np.random.default_rng(14)
    confidence, n, draws = 0.9, 500, 2000
    p = rng.beta(1, 3, n)
    truth = p**1.5
    true_rate = metrics.reliability_curve_of_counts(p, np.ones(n), truth, bins=bins).rate
    held = 0
    for _ in range(draws):
        curve = metrics.reliability_curve(rng.random(n) < truth, p, bins=bins, confidence=confidence)
        held += bool(((curve.lower <= true_rate) & (true_rate <= curve.upper)).all())
    assert held / draws >= confidence - 3 * np.sqrt(confidence * (1 - confidence) / draws)
    assert held < draws


def test_overdispersion_divides_the_rows_of_the_bands() -> None:
    value, n = np.array([0.2, 0.7]), np.array([400, 800])
    wide = metrics.reliability_curve_of_counts(value, n, [80, 600], overdispersion=4.0)
    fewer = metrics.reliability_curve_of_counts(value, n / 4, [20, 150])
    np.testing.assert_allclose([wide.lower, wide.upper], [fewer.lower, fewer.upper])


def test_one_weighted_row_has_no_debiased_error_however_its_weight_is_rounded() -> None:
    for weight in np.linspace(0.05, 3, 60):
        assert metrics.debiased_squared_ece([1, 0], [0.3, 0.9], [weight, weight]) == 0.0
