"""The minima of penalised log-losses, each over all of its parameters at once, by Newton steps."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, eq=False)
class Minima:
    """`parameters` (P, V) of all problems. `errors`: for each problem None, or why these are not its minimum."""

    parameters: NDArray[np.float64]
    errors: tuple[FitError | None, ...]


def find_minima(
    runs: Runs, penalty: Penalty, start: NDArray[np.float64], free: NDArray[np.bool_], *, tolerance: float
) -> Minima:
    """Parameters (P, V) that minimise log-loss + penalty, of each problem by itself; those that are not `free` (P, V)
    stay 0, as they are in `start`.

    The penalty's ridge makes that strictly convex; what is returned lies within `tolerance` (Euclidean) of the minimum:
    the gradient is at most the smallest ridge x `tolerance`, or at most rounding for more than about 10^10 rows. It is
    an error of the problem where MOST_STEPS Newton steps do not get there.

    Each step is solved by conjugate gradients. Along it the logarithm of no curvature, of a cell's loss or of the
    penalty, changes faster than by r, the most that the step moves any cell or its `Penalty.bend`. A step shortened to
    ln(1 + r) / r of it always gains (Bach, "Self-concordant analysis for logistic regression", 2010, section 2). Going
    round family by family would reach the same minimum, but not in time: where a family divides the groups of another,
    only the ridge says how the two share, and each round settles about ridge / rows of that.

    Problems take their steps together, because on few parameters an operation costs hardly more for many problems than
    for one. A problem that is at its minimum stays there.
    """
    least_ridge = penalty.ridge.min(axis=0, initial=np.inf)
    enough = np.maximum(least_ridge * tolerance, _ROUNDING * float(runs.rows.sum()))
    parameters: NDArray[np.float64] = start.copy()
    unsettled = np.ones(len(enough), dtype=bool)
    for _ in range(MOST_STEPS):
        gradient, moments = runs.residuals_and_moments(parameters, unsettled)
        gradient -= penalty.slope(parameters)
        gradient *= free & unsettled
        left = _lengths(gradient)
        unsettled = left > enough
        if not unsettled.any():
            break
        accuracy = np.where(unsettled, np.maximum(_STEP_ACCURACY * left, 0.1 * enough), np.inf)
        step = _newton_steps(runs, gradient, moments, penalty.curvature(parameters), free, accuracy)
        farthest = np.maximum(runs.farthest(step), penalty.bend(step))
        moves = farthest > 0
        parameters += step * np.where(moves, np.log1p(farthest) / np.where(moves, farthest, 1.0), 1.0)
    errors = (
        FitError(f"offsets have a gradient of {own:.2g} after {MOST_STEPS} Newton steps; raise the ridge {ridge:g}")
        if failed
        else None
        for own, failed, ridge in zip(left.tolist(), unsettled.tolist(), least_ridge.tolist(), strict=True)
    )
    return Minima(parameters, tuple(errors))


def _newton_steps(
    runs: Runs,
    gradient: NDArray[np.float64],
    moments: Moments,
    curvature: NDArray[np.float64],
    free: NDArray[np.bool_],
    accuracy: NDArray[np.float64],
) -> NDArray[np.float64]:
    """(P, V) of each problem a step d with |H d - gradient| <= its `accuracy` (V,), by conjugate gradients scaled with
    H's diagonal; 0 where that is accurate enough.

    H: that of the log-loss + diag(`curvature`), the penalty's, of the parameters that are `free`.

    Wherever it stops, d gains as much as the quadratic model says: d H d = d gradient.
    """
    scale = free / (runs.by_group(moments.diagonal) + curvature)
    step, left = np.zeros_like(gradient), gradient.copy()
    direction = scale * left
    product = np.add.reduce(left * direction)
    of_free = free.astype(np.float64)
    searching = _lengths(left) > accuracy
    for _ in range(_MOST_INNER_STEPS):
        turned = runs.by_group(moments.turn(runs.shift(direction)))
        turned += curvature * direction
        turned *= of_free
        length = _ratios(product, np.add.reduce(direction * turned), searching)
        step += length * direction
        left -= length * turned
        searching &= _lengths(left) > accuracy
        if not searching.any():
            break
        scaled = scale * left
        before, product = product, np.add.reduce(left * scaled)
        direction *= _ratios(product, before, searching)
        direction += scaled
    return step


def _ratios(above: NDArray[np.float64], below: NDArray[np.float64], chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(V,) of the chosen problems; 0 of the others."""
    return np.divide(above, below, out=np.zeros_like(above), where=chosen)


def _lengths(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """(V,) Euclidean."""
    # Not by a dot product: what that rounds to depends on the number of processors.
    return np.asarray(np.sqrt(np.add.reduce(columns * columns)))
