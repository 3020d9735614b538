import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit

from stream_calib.calibration.maps.base_map import EDGES, STRICT_SLOPE, BaseMap
from stream_calib.errors import FitError


@st.composite
def base_maps(draw: st.DrawFn, strict: bool = True) -> BaseMap:
    x = sorted(draw(st.sets(st.integers(-1000, 1000), min_size=1, max_size=8)))
    value = sorted(draw(st.lists(st.floats(0, 1), min_size=len(x), max_size=len(x))))
    return BaseMap(np.array(x) / 100, np.array(value), 1e-6, STRICT_SLOPE if strict else 0.0)


def test_is_linear_in_the_probability_between_knots_and_constant_outside() -> None:
    made = BaseMap(np.array([-1.0, 1.0, 2.0]), np.array([0.1, 0.3, 0.3]), 1e-6, 0.0)
    p = made.probability_at(np.array([-10.0, -1.0, -0.5, 0.0, 1.0, 1.5, 10.0]))
    np.testing.assert_allclose(p, [0.1, 0.1, 0.15, 0.2, 0.3, 0.3, 0.3], rtol=1e-12)


def test_keeps_within_p_min() -> None:
    made = BaseMap(np.array([-1.0, 1.0]), np.array([0.0, 1.0]), 1e-3, STRICT_SLOPE)
    p = made.probability_at(np.linspace(-10, 10, 1001))
    assert p.min() >= 1e-3
    assert p.max() <= 1 - 1e-3
    assert p.min() == pytest.approx(1e-3, rel=1e-4)


def test_without_p_min_0_and_1_are_reached() -> None:
    made = BaseMap(np.array([-1.0, 1.0]), np.array([0.0, 1.0]), 0.0, 0.0)
    assert made.probability_at(np.array([-5.0, 5.0])).tolist() == [0.0, 1.0]


@given(base_maps())
def test_increases_strictly_at_the_grids_edges_also_where_knots_are_flat_or_at_a_limit(made: BaseMap) -> None:
    p = made.probability_at(EDGES[1:, 0])
    assert (np.diff(p) > 0).all()
    assert p[0] >= 1e-6
    assert p[-1] <= 1 - 1e-6


@given(base_maps())
def test_the_strict_slope_costs_no_more_than_it_says(made: BaseMap) -> None:
    flat = BaseMap(made.log_odds, made.value, made.p_min, 0.0)
    x = np.linspace(-10, 10, 301)
    assert np.abs(made.probability_at(x) - flat.probability_at(x)).max() < 2.6e-6


@given(base_maps())
def test_is_the_same_map_after_a_trip_through_json(made: BaseMap) -> None:
    text = json.dumps(made.to_lists(), allow_nan=False)
    again = BaseMap.from_lists(json.loads(text))
    x = np.linspace(-10, 10, 301)
    assert again.log_odds_at(x).tobytes() == made.log_odds_at(x).tobytes()
    assert json.dumps(again.to_lists()) == text


def test_edges_are_the_values_at_both_ends_of_every_bin() -> None:
    made = BaseMap(np.array([-1.0, 1.0]), np.array([0.2, 0.7]), 1e-6, STRICT_SLOPE)
    edges = made.edges()
    assert edges.shape == (402, 2)
    assert (edges[:-1, 1] == edges[1:, 0]).all()
    assert edges[201, 0] == pytest.approx(logit(0.45))
    np.testing.assert_allclose(expit(edges[[0, -1], 0]), [0.2, 0.7], atol=3e-6)


@pytest.mark.parametrize(
    ("x", "value", "p_min", "slope"),
    [
        ([], [], 1e-6, 0.0),
        ([0.0, 1.0], [0.5], 1e-6, 0.0),
        ([1.0, 1.0], [0.2, 0.5], 1e-6, 0.0),
        ([1.0, np.inf], [0.2, 0.5], 1e-6, 0.0),
        ([0.0, 1.0], [0.5, 0.2], 1e-6, 0.0),
        ([0.0, 1.0], [0.5, 1.2], 1e-6, 0.0),
        ([0.0, 1.0], [np.nan, 0.2], 1e-6, 0.0),
        ([0.0, 1.0], [0.1, 0.2], 0.5, 0.0),
        ([0.0, 1.0], [0.1, 0.2], 1e-6, -1.0),
    ],
)
def test_refuses_what_is_no_map(x: list[float], value: list[float], p_min: float, slope: float) -> None:
    with pytest.raises(FitError):
        BaseMap(np.array(x), np.array(value), p_min, slope)
