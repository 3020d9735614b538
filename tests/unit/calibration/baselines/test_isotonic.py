import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression

from stream_calib.calibration.baselines import CenteredIsotonic, Isotonic
from stream_calib.calibration.grid import log_odds

rows = st.lists(st.tuples(st.integers(1, 39), st.booleans(), st.integers(1, 9)), min_size=4, max_size=80).filter(
    lambda r: len({y for _, y, _ in r}) == 2
)


@given(rows)
@settings(max_examples=60)
def test_is_scikit_learns_at_the_fitted_scores(given_rows: list[tuple[int, bool, int]]) -> None:
    score = np.array([s for s, _, _ in given_rows]) / 40
    label = np.array([y for _, y, _ in given_rows], dtype=np.float64)
    weight = np.array([w for _, _, w in given_rows], dtype=np.float64)
    theirs = IsotonicRegression().fit(score, label, weight).predict(score)
    np.testing.assert_allclose(Isotonic(p_min=0.0).fit(score, label, weight).predict(score), theirs, atol=1e-9)


def test_many_rows_of_all_scores() -> None:
    rng = np.random.default_rng(8)
    score = expit(rng.normal(0, 2, 50_000))
    label = (rng.random(50_000) < score).astype(np.float64)
    theirs = IsotonicRegression().fit(score, label).predict(score)
    fitted = Isotonic(p_min=0.0).fit(score, label)
    # Rows may lie so near to one another that a score rounded to 11 decimals of log-odds is between two knots.
    np.testing.assert_allclose(fitted.predict(score), theirs, atol=1e-5)
    assert len(fitted.base_map_.log_odds) < 1000


def test_plateaus_have_two_knots_and_single_scores_one() -> None:
    fitted = Isotonic().fit([0.1, 0.2, 0.2, 0.3, 0.4, 0.9], [0, 1, 0, 0, 1, 1])
    np.testing.assert_allclose(expit(fitted.base_map_.log_odds), [0.1, 0.2, 0.3, 0.4, 0.9])
    np.testing.assert_allclose(fitted.base_map_.value, [0, 1 / 3, 1 / 3, 1, 1])


def test_the_map_is_constant_beyond_the_fitted_scores() -> None:
    fitted = Isotonic().fit([0.2, 0.2, 0.8, 0.8], [0, 1, 1, 1])
    assert fitted.predict([0.0, 0.2, 0.9, 1.0]) == pytest.approx([0.5, 0.5, 1 - 1e-6, 1 - 1e-6], abs=1e-12)


class TestCentered:
    def test_example_of_the_authors_package(self) -> None:
        # Example of cirPAVA in R package cir: doses 1 .. 5, responses 6/25, 4/17, 11/17, 1/3, 1 of 25, 34, 17, 3, 1.
        n, k = np.array([25.0, 34, 17, 3, 1]), np.array([6.0, 8, 11, 1, 1])
        dose = np.arange(1.0, 6.0)
        label = np.repeat(np.tile([1.0, 0.0], 5), np.stack([k, n - k], axis=1).ravel().astype(int))
        fitted = CenteredIsotonic(p_min=0.0).fit(np.repeat(expit(dose), n.astype(int)), label)
        np.testing.assert_allclose(fitted.base_map_.log_odds, [93 / 59, 63 / 20, 5], rtol=1e-10)
        np.testing.assert_allclose(fitted.base_map_.value, [14 / 59, 0.6, 1], rtol=1e-10)
        estimate = [14 / 59, 0.334949, 0.565428, 0.783784, 1]
        np.testing.assert_allclose(fitted.predict(expit(dose)), estimate, atol=5e-7)
        plain = Isotonic(p_min=0.0).fit(np.repeat(expit(dose), n.astype(int)), label)
        np.testing.assert_allclose(plain.predict(expit(dose)), [14 / 59, 14 / 59, 0.6, 0.6, 1], rtol=1e-10)

    def test_without_violations_it_is_isotonic_regression(self) -> None:
        score, label = np.repeat([0.2, 0.4, 0.7], 10), np.tile(np.arange(10), 3) < np.repeat([2, 5, 8], 10)
        x = np.linspace(0.01, 0.99, 50)
        assert (
            CenteredIsotonic().fit(score, label).predict(x).tolist() == Isotonic().fit(score, label).predict(x).tolist()
        )

    def test_plateaus_at_0_and_1_stay(self) -> None:
        fitted = CenteredIsotonic(p_min=0.0).fit([0.1, 0.3, 0.5, 0.5, 0.7, 0.9], [0, 0, 1, 0, 1, 1])
        np.testing.assert_allclose(fitted.predict([0.1, 0.3, 0.5, 0.7, 0.9]), [0, 0, 0.5, 1, 1], atol=1e-9)

    @given(rows)
    @settings(max_examples=60)
    def test_it_rises_wherever_isotonic_regression_is_not_0_or_1(self, given_rows: list[tuple[int, bool, int]]) -> None:
        score = np.array([s for s, _, _ in given_rows]) / 40
        label = np.array([y for _, y, _ in given_rows], dtype=np.float64)
        fitted = CenteredIsotonic(p_min=0.0).fit(score, label).base_map_
        inner = (fitted.value[1:] > 0) & (fitted.value[:-1] < 1)
        assert (np.diff(fitted.value)[inner] > 0).all()
        assert fitted.log_odds[0] >= log_odds(score).min() - 1e-10
        assert fitted.log_odds[-1] <= log_odds(score).max() + 1e-10

    def test_blocks_that_are_equal_are_one(self) -> None:
        # 56 of 105 and 8 of 15: the running means of pool-adjacent-violators differ in the last digit.
        n, k = np.array([14, 21, 21, 5, 25, 19, 6, 9]), np.array([9, 20, 14, 2, 1, 10, 4, 4])
        assert len(isotonic_regression(k / n, weights=n).blocks) == 3
        label = np.repeat(np.tile([1, 0], 8), np.stack([k, n - k], axis=1).ravel())
        fitted = CenteredIsotonic().fit(np.repeat(np.arange(1, 9) / 10, n), label)
        np.testing.assert_allclose(fitted.base_map_.value, [8 / 15], rtol=1e-11)
