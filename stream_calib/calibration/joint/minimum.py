"""The minimum of the penalised log-loss over all parameters at once, by Newton steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.joint.penalty import Penalty
from stream_calib.calibration.joint.runs import Moments, Runs
from stream_calib.errors import FitError

MOST_STEPS = 200
"""Newton steps after which a fit is given up; six or seven are usual, 15 with firm families."""
_ROUNDING = 1e-15
"""Gradients below this share of the rows are rounding."""
_STEP_ACCURACY = 0.01
"""A Newton step is solved for until so much of the gradient is left: near the end each still gains two digits."""
_MOST_INNER_STEPS = 2_000


def find_minimum(runs: Runs, penalty: Penalty, start: NDArray[np.float64], *, tolerance: float) -> NDArray[np.float64]:
    """Parameters (parameters,) that minimise log-loss + penalty.

    The penalty's ridge makes that strictly convex; what is returned lies within `tolerance` (Euclidean) of the minimum:
    the gradient is at most the smallest ridge x `tolerance`, or at most rounding for more than about 10^10 rows. Raises
    FitError where MOST_STEPS Newton steps do not get there.

    Each step is solved by conjugate gradients. Along it the logarithm of no curvature, of a cell's loss or of the
    penalty, changes faster than by r, the most that the step moves any cell or its `Penalty.bend`. A step shortened to
    ln(1 + r) / r of it always gains (Bach, "Self-concordant analysis for logistic regression", 2010, section 2). Going
    round family by family would reach the same minimum, but not in time: where a family divides the groups of another,
    only the ridge says how the two share, and each round settles about ridge / rows of that.
    """
    enough = max(float(penalty.ridge.min(initial=np.inf)) * tolerance, _ROUNDING * float(runs.rows.sum()))
    parameters: NDArray[np.float64] = start.copy()
    for _ in range(MOST_STEPS):
        gradient, moments = runs.residuals_and_moments(parameters)
        gradient -= penalty.slope(parameters)
        left = _length(gradient)
        if left <= enough:
            return parameters
        curvature = penalty.curvature(parameters)
        step = _newton_step(runs, gradient, moments, curvature, max(_STEP_ACCURACY * left, 0.1 * enough))
        farthest = max(runs.farthest(step), penalty.bend(step))
        parameters += step * (np.log1p(farthest) / farthest if farthest > 0 else 1.0)
    raise FitError(
        f"offsets have a gradient of {left:.2g} after {MOST_STEPS} Newton steps; raise the ridge "
        f"{float(penalty.ridge.min()):g}"
    )


def _newton_step(
    runs: Runs, gradient: NDArray[np.float64], moments: Moments, curvature: NDArray[np.float64], accuracy: float
) -> NDArray[np.float64]:
    """(parameters,) step d with |H d - gradient| <= `accuracy`, by conjugate gradients scaled with H's diagonal.

    H: that of the log-loss + diag(`curvature`), the penalty's.

    Wherever it stops, d gains as much as the quadratic model says: d H d = d gradient.
    """
    scale = 1.0 / (runs.by_group(moments.none, moments.two) + curvature)
    step, left = np.zeros_like(gradient), gradient.copy()
    direction = scale * left
    product = float((left * direction).sum())
    for _ in range(_MOST_INNER_STEPS):
        turned = runs.by_group(*moments.turn(*runs.shift(direction))) + curvature * direction
        length = product / float((direction * turned).sum())
        step += length * direction
        left -= length * turned
        if _length(left) <= accuracy:
            break
        scaled = scale * left
        before, product = product, float((left * scaled).sum())
        direction = scaled + product / before * direction
    return step


def _length(vector: NDArray[np.float64]) -> float:
    # Not by a dot product: what that rounds to depends on the number of processors.
    return float(np.sqrt((vector * vector).sum()))
