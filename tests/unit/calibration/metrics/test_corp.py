from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss

from stream_calib.calibration.metrics import (
    brier,
    corp_curve,
    corp_curve_of_counts,
    corp_decomposition,
    log_loss,
)
from stream_calib.calibration.metrics.corp import CorpScore

DRAWS = 2000

rows = st.lists(
    st.tuples(st.integers(0, 20).map(lambda i: i / 20), st.booleans(), st.integers(1, 3)), min_size=1, max_size=60
)


@given(rows)
@settings(max_examples=60)
def test_the_curve_is_isotonic_regression_of_labels_on_probabilities(given_rows: list[tuple[float, bool, int]]) -> None:
    p, y, w = (np.array(column) for column in zip(*given_rows, strict=True))
    curve = corp_curve(y, p, w)
    expected = IsotonicRegression().fit(p, y, w).predict(p)
    block = np.searchsorted(curve.largest, p)
    np.testing.assert_allclose(curve.rate[block], expected, atol=1e-12)
    assert (curve.smallest[block] <= p).all()
    assert (np.diff(curve.rate) > 0).all()
    np.testing.assert_allclose(curve.labelled, np.bincount(block, w))


@pytest.mark.parametrize("score", get_args(CorpScore))
@given(given_rows=rows)
@settings(max_examples=60)
def test_the_score_is_the_sum_of_three_parts_none_below_0(
    score: CorpScore, given_rows: list[tuple[float, bool, int]]
) -> None:
    p, y, w = (np.array(column) for column in zip(*given_rows, strict=True))
    parts = corp_decomposition(y, p, w, score=score)
    whole = brier(y, p, w) if score == "brier" else log_loss(y, p, w)
    assert parts.miscalibration - parts.discrimination + parts.uncertainty == pytest.approx(whole, abs=1e-12)
    assert min(parts.miscalibration, parts.discrimination, parts.uncertainty) >= -1e-12


def test_decomposition_by_hand() -> None:
    # Pooling .3 and .4, and nothing else, makes the rates (0, 1/2, 1) increase: Brier .25 x 2 / 4 after, .25 before.
    y, p = np.array([0, 1, 0, 1]), np.array([0.1, 0.3, 0.4, 0.8])
    parts = corp_decomposition(y, p)
    assert parts.uncertainty == pytest.approx(0.25)
    assert parts.discrimination == pytest.approx(0.25 - 0.125)
    assert parts.miscalibration == pytest.approx(brier_score_loss(y, p) - 0.125)
    assert corp_curve(y, p).rate.tolist() == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("power", [0.7, 1.0, 3.0])
def test_the_band_holds_for_all_probabilities_at_once_as_often_as_stated(power: float) -> None:
    # Any increasing truth will do, also far from the diagonal; many rows are tied.
    rng = np.random.default_rng([10, int(10 * power)])
    confidence, n = 0.8, 600
    p = np.sort(np.where(rng.random(n) < 0.3, 0.25, rng.beta(1, 3, n)))
    truth = p**power
    at = np.linspace(0, 1, 2001)
    at = np.sort(np.concatenate([at[(at >= p[0]) & (at <= p[-1])], p]))
    held = 0
    for _ in range(DRAWS // 4):
        lower, upper = corp_curve(rng.random(n) < truth, p, confidence=confidence).band.at(at)
        held += bool(((lower <= at**power) & (at**power <= upper)).all())
    assert held / (DRAWS // 4) >= confidence - 3 * np.sqrt(confidence * (1 - confidence) / (DRAWS // 4))


def test_the_band_narrows_with_rows_and_widens_with_overdispersion() -> None:
    value = np.linspace(0.05, 0.95, 19)
    inside = slice(3, 16)

    def width(rows: int, overdispersion: float) -> float:
        n = np.full(19, rows)
        lower, upper = corp_curve_of_counts(value, n, value * n, overdispersion=overdispersion).band.at(value)
        return float((upper - lower)[inside].mean())

    assert width(10_000, 1.0) < width(100, 1.0) / 5
    assert width(10_000, 4.0) == pytest.approx(width(2_500, 1.0), rel=1e-9)


def test_a_curve_that_falls_shows_as_a_band_without_room() -> None:
    y, p = np.repeat([1, 0], 500), np.repeat([0.2, 0.8], 500)
    lower, upper = corp_curve(y, p).band.at([0.5])
    assert lower[0] > upper[0]


def test_the_band_says_nothing_outside_of_the_rows() -> None:
    lower, upper = corp_curve(np.arange(200) % 2, np.full(200, 0.5)).band.at([0.0, 0.4, 0.5, 0.6, 1.0])
    assert lower[:2].tolist() == [0.0, 0.0]
    assert upper[3:].tolist() == [1.0, 1.0]
    assert 0.3 < lower[2] < 0.5 < upper[2] < 0.7
    assert lower[3] == lower[2]
    assert upper[1] == upper[2]


def test_light_rows_after_a_heavy_one_have_a_band() -> None:
    p = np.linspace(0.1, 0.9, 200)
    weight = np.where(np.arange(200) == 20, 1e12, 1e-12)
    band = corp_curve(np.arange(200) % 2, p, weight).band
    assert np.isfinite([band.lower, band.upper]).all()
    assert (band.lower >= 0).all()
    assert (band.upper <= 1).all()
