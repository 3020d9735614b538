from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_calib.calibration.joint.penalty import FIRM_REACH, Penalty

offsets = st.floats(-20, 20)
PENALTY = Penalty(ridge=np.array([20.0, 20.0]), firm=np.array([0.0, 200.0]))


def value(u: float) -> float:
    """By the definition, of a firm parameter."""
    return 10 * u**2 + 200 * FIRM_REACH**2 * (sqrt(1 + (u / FIRM_REACH) ** 2) - 1)


@given(offsets)
def test_slope_and_curvature_are_the_derivatives_of_the_definition(u: float) -> None:
    at, step = np.array([u, u]), 1e-4
    first = (value(u + step) - value(u - step)) / (2 * step)
    # The third derivative is at most 220 x 1.5 / .05 and the fourth 200 x 3 / .05^2: off by step^2 / 6 and / 12 of it.
    assert PENALTY.slope(at)[1] == pytest.approx(first, abs=1e-3)
    slopes = [PENALTY.slope(at + moved)[1] for moved in (step, -step)]
    assert PENALTY.curvature(at)[1] == pytest.approx((slopes[0] - slopes[1]) / (2 * step), abs=1e-3)
    assert (PENALTY.slope(at)[0], PENALTY.curvature(at)[0]) == (20 * u, 20)


@given(offsets, st.floats(-1, 1))
def test_no_curvature_changes_faster_than_the_bend(u: float, step: float) -> None:
    before, after = (np.log(PENALTY.curvature(np.array([0.0, at]))[1]) for at in (u, u + step))
    bend = PENALTY.bend(np.array([100.0, step]))
    assert abs(after - before) <= bend + 1e-9


def test_the_bend_is_reached_and_is_that_of_firm_parameters() -> None:
    """The ridge alone does not bend; of the other term the third derivative is largest at u = d against the second."""
    alone = Penalty(ridge=np.array([1e-9]), firm=np.array([1.0]))
    step, at = 1e-6, FIRM_REACH
    change = np.log(alone.curvature(np.array([at]))) - np.log(alone.curvature(np.array([at + step])))
    assert change[0] == pytest.approx(alone.bend(np.array([step])), rel=1e-3)
    assert PENALTY.bend(np.array([5.0, 0.0])) == 0.0


def test_near_0_it_is_a_ridge_and_far_off_a_constant_pull() -> None:
    firm = Penalty(ridge=np.full(3, 1.0), firm=np.full(3, 200.0))
    slope = firm.slope(np.array([1e-4, 1.0, 2.0]))
    assert slope[0] == pytest.approx(201e-4, rel=1e-4)
    np.testing.assert_allclose(slope[1:] - [1.0, 2.0], 200 * FIRM_REACH, rtol=2e-3)
