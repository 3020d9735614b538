import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, logit

from stream_calib.calibration.baselines import BetaCalibration

SCORES = np.array(
    [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.97]
)


@pytest.mark.parametrize(
    ("label", "a", "b", "intercept"),
    [
        ("00010001010110110111", 1.074446217, 0.704544502, 0.188338230),
        ("01010100101010101111", 0.0, 1.068346209, -0.813740470),
        ("00001010110101011010", 1.070170202, 0.0, 0.669527940),
        ("00011111011011011010", 0.638384978, 0.0, 0.981539080),
    ],
)
def test_is_the_authors_implementation(label: str, a: float, b: float, intercept: float) -> None:
    # Made with the authors' betacal 1.1.0 (parameters="abm"), its logistic regressions run to a tolerance of 1e-10.
    fitted = BetaCalibration().fit(SCORES, np.array(list(label), dtype=np.int64))
    assert (fitted.a_, fitted.b_, fitted.intercept_) == pytest.approx((a, b, intercept), abs=2e-6)


def test_recovers_a_beta_law() -> None:
    # Scores beta distributed in both classes: the truth is the beta map itself (section 3 of the paper).
    rng = np.random.default_rng(7)
    n = 400_000
    label = rng.random(n) < 0.4
    score = np.where(label, rng.beta(3.0, 1.5, n), rng.beta(1.2, 2.5, n))
    fitted = BetaCalibration().fit(score, label)
    # Beta densities' ratio: s^(3 - 1.2) (1 - s)^(1.5 - 2.5).
    # Standard errors for so many rows, over 20 seeds: .019 and .015.
    assert fitted.a_ == pytest.approx(1.8, abs=0.08)
    assert fitted.b_ == pytest.approx(1.0, abs=0.06)


rows = st.lists(st.tuples(st.integers(1, 39), st.booleans()), min_size=4, max_size=80).filter(
    lambda r: len({y for _, y in r}) == 2
)


@given(rows)
@settings(max_examples=40)
def test_no_optimiser_does_better(given_rows: list[tuple[int, bool]]) -> None:
    score = np.array([s for s, _ in given_rows]) / 40
    label = np.array([y for _, y in given_rows], dtype=np.float64)

    def loss(parameters: np.ndarray) -> float:
        log_odds = parameters[0] + parameters[1] * np.log(score) - parameters[2] * np.log1p(-score)
        data = np.logaddexp(0, log_odds).sum() - (label * log_odds).sum()
        return float(data + 5e-7 * (parameters[1] ** 2 + parameters[2] ** 2))

    fitted = BetaCalibration().fit(score, label)
    found = loss(np.array([fitted.intercept_, fitted.a_, fitted.b_]))
    best = minimize(loss, np.zeros(3), method="L-BFGS-B", bounds=[(None, None), (0, None), (0, None)])
    assert fitted.a_ >= 0
    assert fitted.b_ >= 0
    assert found <= best.fun + 1e-9


def test_separated_classes_give_a_finite_fit() -> None:
    fitted = BetaCalibration().fit([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1])
    assert np.isfinite([fitted.a_, fitted.b_, fitted.intercept_]).all()
    predicted = fitted.predict([0.1, 0.2, 0.5, 0.8, 0.9])
    assert predicted[1] < 1e-4
    assert predicted[3] > 1 - 1e-4
    assert predicted[2] == pytest.approx(0.5, abs=1e-6)


def test_one_distinct_score_is_fitted_at_that_score() -> None:
    assert BetaCalibration().fit([0.3] * 10, [1] * 3 + [0] * 7).predict([0.3])[0] == pytest.approx(0.3, abs=1e-9)


def test_a_score_that_ranks_the_wrong_way_round_gets_the_base_rate() -> None:
    fitted = BetaCalibration().fit([0.1, 0.2, 0.3, 0.7, 0.8, 0.9], [1, 1, 1, 1, 0, 0])
    assert (fitted.a_, fitted.b_) == (0.0, 0.0)
    np.testing.assert_allclose(fitted.predict([0.1, 0.9]), 4 / 6, rtol=1e-9)
    assert fitted.base_map().value.max() == pytest.approx(4 / 6)


def test_a_rare_class_among_many_rows_converges() -> None:
    n, k = np.zeros(402), np.zeros(402)
    n[1:200] = 1e7
    k[1:200] = 1e7 * expit(0.8 * np.linspace(-10, -0.05, 199) - 1)
    fitted = BetaCalibration().fit_cells(n, k)
    x = np.linspace(-9, -1, 50)
    np.testing.assert_allclose(logit(fitted.predict(expit(x))), 0.8 * x - 1, atol=0.3)
