from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit

from stream_calib.calibration.intervals import interval_of, interval_tolerance, log_odds_intervals
from stream_calib.errors import ConfigurationError


def test_edges_are_even_in_log_odds_and_reach_from_0_to_1() -> None:
    edges = log_odds_intervals(width=0.5, limit=2.0)
    assert (edges[0], edges[-1], len(edges)) == (0.0, 1.0, 11)
    np.testing.assert_allclose(logit(edges[1:-1]), np.arange(-2.0, 2.01, 0.5), atol=1e-11)
    assert edges[5] == 0.5


def test_intervals_are_closed_below_and_the_last_one_above_too() -> None:
    p = np.array([0.0, np.nextafter(0.25, 0), 0.25, 0.5, np.nextafter(0.5, 1), 1.0])
    assert interval_of((0.0, 0.25, 0.5, 1.0), p).tolist() == [0, 0, 1, 2, 2, 2]


@given(st.integers(1, 40), st.floats(0.05, 1.0), st.lists(st.floats(0, 1), min_size=1))
def test_every_probability_lies_between_the_edges_of_its_interval(
    steps: int, width: float, probability: list[float]
) -> None:
    edges = np.array(log_odds_intervals(width, steps * width / 2))
    p = np.array(probability)
    found = interval_of(edges.tolist(), p)
    assert (edges[found] <= p).all()
    assert ((p < edges[found + 1]) | (p == 1)).all()


def test_rare_events_are_allowed_less() -> None:
    allowed = interval_tolerance((0.0, 0.02, 0.18, 0.5, 1.0), alpha_abs=0.005, alpha_rel=0.1)
    np.testing.assert_allclose(allowed, [0.005, 0.01, 0.034, 0.075], rtol=1e-12)


def test_a_relative_part_of_0_leaves_one_tolerance() -> None:
    assert set(interval_tolerance(log_odds_intervals(), 0.05, 0.0).tolist()) == {0.05}


@pytest.mark.parametrize(
    ("width", "limit"), [(0.0, 5.0), (-1.0, 5.0), (0.3, 1.0), (1.0, 0.0), (np.nan, 5.0), (1.0, np.inf), (1e-3, 5.0)]
)
def test_widths_that_do_not_fill_the_scale_are_refused(width: float, limit: float) -> None:
    with pytest.raises(ConfigurationError, match="choose a width that divides"):
        log_odds_intervals(width, limit)


def test_edges_that_rounding_makes_equal_are_refused() -> None:
    assert expit(40.0) == 1.0
    with pytest.raises(ConfigurationError, match="must increase from 0 to 1"):
        log_odds_intervals(1.0, 40.0)


@pytest.mark.parametrize("edges", [(0.0,), (0.1, 1.0), (0.0, 0.9), (0.0, 0.5, 0.5, 1.0), (0.0, np.nan, 1.0)])
def test_edges_that_are_no_partition_are_refused(edges: Sequence[float]) -> None:
    with pytest.raises(ConfigurationError, match="must increase from 0 to 1"):
        interval_of(edges, np.array([0.5]))


@pytest.mark.parametrize(("alpha_abs", "alpha_rel"), [(0.0, 0.1), (1.1, 0.1), (0.1, -0.1), (0.1, 2.0), (np.nan, 0.1)])
def test_tolerances_that_are_no_residuals_are_refused(alpha_abs: float, alpha_rel: float) -> None:
    with pytest.raises(ConfigurationError, match="they are residuals"):
        interval_tolerance((0.0, 1.0), alpha_abs, alpha_rel)
