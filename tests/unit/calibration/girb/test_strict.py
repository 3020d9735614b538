"""Ranks are kept exactly, at the price that is stated."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from stream_calib.calibration import GIRB, metrics
from stream_calib.calibration.grid import EDGE_LOG_ODDS
from stream_calib.calibration.maps.base_map import EDGES
from stream_calib.errors import ConfigurationError

SINGLE = st.floats(0, 1, width=32)


def _keeps_order(fitted: GIRB, score: NDArray[np.float64]) -> None:
    distinct = np.unique(score)
    assert (np.diff(fitted.predict(distinct)) > 0).all()


@st.composite
def _rows(draw: st.DrawFn) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    score = draw(st.lists(SINGLE, min_size=2, max_size=60))
    label = draw(st.lists(st.booleans(), min_size=len(score), max_size=len(score)))
    label[:2] = [True, False]
    return np.array(score, dtype=np.float64), np.array(label)


@given(
    _rows(),
    st.sampled_from(
        [{}, {"n_groups": 3}, {"prior_centre": None}, {"shape": "step", "n_groups": 8}, {"end_slopes": (0.0, 2.0)}]
    ),
    st.sampled_from([0.0, 1e-9, 1e-6, 1e-2]),
)
@settings(max_examples=150)
def test_auc_is_kept_exactly_and_nothing_is_tied_that_was_not(
    rows: tuple[NDArray[np.float64], NDArray[np.bool_]], parameters: dict[str, Any], p_min: float
) -> None:
    score, label = rows
    fitted = GIRB(**parameters, p_min=p_min).fit(score, label)
    p = fitted.predict(score)
    assert np.array_equal(np.unique(score, return_inverse=True)[1], np.unique(p, return_inverse=True)[1])
    assert metrics.auc(label, p) == metrics.auc(label, score)
    assert roc_auc_score(label, p) == roc_auc_score(label, score)
    assert p.min() >= p_min
    assert p.max() <= 1 - p_min


def _neighbours(centre: float, n: int = 200) -> NDArray[np.float64]:
    """Consecutive single-precision numbers."""
    bits = np.float32(centre).view(np.uint32).astype(np.int64) + np.arange(-n, n)
    one = np.float32(1).view(np.uint32)
    return np.asarray(np.clip(bits, 0, one).astype(np.uint32).view(np.float32), dtype=np.float64)


@pytest.mark.parametrize("level", ["low", "middle", "high"])
@pytest.mark.parametrize("p_min", [0.0, 1e-9, 1e-6, 1e-3])
@pytest.mark.parametrize("shape", ["linear", "step"])
def test_neighbours_in_single_precision_stay_apart_on_a_plateau_wherever_it_lies(
    level: str, p_min: float, shape: Any
) -> None:
    rng = np.random.default_rng(1)
    score = rng.random(20_000)
    rate = {"low": 0.0, "middle": 0.5, "high": 1.0}[level]
    label = rng.random(20_000) < rate
    label[np.argmin(score)], label[np.argmax(score)] = False, True
    fitted = GIRB(prior_centre=None, p_min=p_min, n_groups=50, shape=shape).fit(score, label)
    for centre in (1e-44, 1e-30, 3e-9, 4.54e-5, 1e-3, 0.25, 0.5, 0.75, 0.99, 1 - 4.54e-5, 1 - 1e-5, 1.0):
        _keeps_order(fitted, _neighbours(centre))
    _keeps_order(fitted, np.concatenate([_neighbours(c) for c in np.linspace(0.001, 0.999, 50)]))
    _keeps_order(fitted, expit(np.linspace(-100, 36, 10_000)))


def test_scores_nearer_than_single_precision_never_change_order() -> None:
    rng = np.random.default_rng(2)
    score = rng.random(5000)
    fitted = GIRB(n_groups=20).fit(score, rng.random(5000) < score)
    steps = np.arange(-300, 300)
    for centre in (1e-12, 4.5e-5, 0.1, 0.5, 0.9, 1 - 1e-9):
        near = np.clip(centre + steps * np.spacing(centre), 0, 1)
        assert (np.diff(fitted.predict(near)) >= 0).all()


@pytest.mark.parametrize("p_min", [1e-9, 1e-6, 1e-3])
def test_costs_no_more_than_it_says(p_min: float) -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        score = expit(rng.normal(rng.normal(0, 3), 3, 3000))
        label = rng.random(3000) < expit(rng.normal(0, 3) + 0.8 * np.log(score / (1 - score)))
        label[:2] = [True, False]
        strict, flat = (GIRB(p_min=p_min, strict=s).fit(score, label) for s in (True, False))
        x = np.concatenate([score, expit(np.linspace(-30, 30, 500)), [0.0, 1.0]])
        a, b = strict.predict(x), flat.predict(x)
        assert np.abs(a - b).max() < 5e-6
        np.testing.assert_allclose(a, b, rtol=4e-5)


@given(_rows(), st.booleans(), st.sampled_from(["linear", "step"]))
@settings(max_examples=60)
def test_the_base_map_is_predict_at_every_edge_of_the_grid(
    rows: tuple[NDArray[np.float64], NDArray[np.bool_]], strict: bool, shape: Any
) -> None:
    fitted = GIRB(strict=strict, shape=shape, n_groups=10).fit(*rows)
    at_edges = fitted.base_map().probability_at(EDGE_LOG_ODDS)
    np.testing.assert_allclose(fitted.predict(expit(EDGE_LOG_ODDS)), at_edges, rtol=1e-9)
    if strict:
        assert (np.diff(expit(fitted.base_map().edges()[1:-1]), axis=1) > 0).all()
    assert np.array_equal(fitted.base_map().log_odds_at(EDGES), fitted.base_map().edges())


def test_without_strict_increase_plateaus_are_ties() -> None:
    score, label = np.linspace(0.1, 0.9, 100), np.arange(100) % 2
    p = GIRB(prior_centre=None, strict=False, n_groups=1).fit(score, label).predict(score)
    assert len(np.unique(p)) == 1
    assert len(np.unique(GIRB(prior_centre=None, n_groups=1).fit(score, label).predict(score))) == 100


def test_a_p_min_that_leaves_no_room_is_refused() -> None:
    GIRB(p_min=0.49).fit([0.1, 0.9], [0, 1])
    with pytest.raises(ConfigurationError, match=r"p_min = 0\.49999\d* leaves no room"):
        GIRB(p_min=0.499999).fit([0.1, 0.9], [0, 1])
