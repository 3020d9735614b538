import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom

from stream_calib.calibration.metrics.binomial_bounds import clopper_pearson, upper_tail


def poisson_binomial(probabilities: list[float]) -> NDArray[np.float64]:
    """(n + 1,) exact law of the number of positives."""
    law = np.ones(1)
    for p in probabilities:
        law = np.convolve(law, [1 - p, p])
    return law


@given(st.lists(st.sampled_from([0.0, 0.001, 0.02, 0.1, 0.3, 0.5, 0.8, 0.99, 1.0]), min_size=1, max_size=25))
def test_no_tail_of_labels_with_different_probabilities_is_larger_than_its_bound(probabilities: list[float]) -> None:
    n = len(probabilities)
    exact = np.cumsum(poisson_binomial(probabilities)[::-1])[::-1]
    bound = upper_tail(np.arange(n + 1.0), np.full(n + 1, float(n)), np.full(n + 1, np.mean(probabilities)))
    assert (bound >= exact - 1e-12).all()
    assert (np.diff(bound) <= 1e-12).all()


def test_is_the_binomial_tail_where_probabilities_are_equal() -> None:
    k = np.arange(4.0, 21)
    expected = binom.sf(k - 1, 20, 0.15)
    np.testing.assert_allclose(upper_tail(k, np.full(17, 20.0), np.full(17, 0.15)), expected, rtol=1e-12)
    assert upper_tail(np.array([0.0]), np.array([20.0]), np.array([0.15])) == 1
    # 1 of n where next to nothing is expected: the union bound.
    assert upper_tail(np.array([1.0]), np.array([20.0]), np.array([1e-4])) == pytest.approx(2e-3)


@given(st.lists(st.sampled_from([0.001, 0.02, 0.1, 0.3, 0.5, 0.8, 0.99]), min_size=1, max_size=25))
def test_bounds_of_the_mean_of_different_probabilities_are_missed_as_seldom_as_stated(
    probabilities: list[float],
) -> None:
    n, law = len(probabilities), poisson_binomial(probabilities)
    lower, upper = clopper_pearson(np.arange(n + 1.0), np.full(n + 1, float(n)), 0.025)
    assert law[lower > np.mean(probabilities)].sum() <= 0.025 + 0.025**2
    assert law[upper < np.mean(probabilities)].sum() <= 0.025 + 0.025**2
