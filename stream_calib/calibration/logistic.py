"""Logistic regression on a few features, from counts, with weights that may be kept from falling below 0.

Sums over the data are plain sums, never BLAS products, so the bits do not depend on the number of processors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from stream_calib.errors import FitError

_MAX_STEPS = 200
_SMALLEST_SCALE = 1e-12
_GAIN_LEFT = 1e-13
"""A fit ends where the next Newton step promises to lower the loss by less than this share of it."""
_ARMIJO = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class LogisticFit:
    """`coefficients` (q,): of the features, in order. `held` (q,) bool: kept at 0, where they would have fallen below.

    `information` (q, q): second derivatives of the penalised loss at the fit.
    """

    coefficients: NDArray[np.float64]
    held: NDArray[np.bool_]
    information: NDArray[np.float64]


def fit_logistic(
    features: Sequence[NDArray[np.float64]],
    labelled: NDArray[np.float64],
    positives: NDArray[np.float64],
    *,
    penalty: NDArray[np.float64],
    at_least_0: Sequence[bool],
) -> LogisticFit:
    """Minimises the summed log-loss + c' `penalty` c / 2 over coefficients c, those `at_least_0` being 0 or more.

    `features`: q columns (k,), a column of ones for an intercept; `labelled`, `positives` (k,); `penalty` (q, q),
    positive semidefinite. Projected Newton with an active set and backtracking along the projected arc (Bertsekas,
    "Projected Newton methods for optimization problems with simple constraints", 1982, section 2), from zero; the loss
    is convex, so the minimum does not depend on the way. Raises FitError where it is not reached.
    """
    size = len(features)
    bounded = np.array(at_least_0, dtype=np.bool_)
    negatives = labelled - positives

    def loss(coefficients: NDArray[np.float64]) -> float:
        log_odds = _combined(features, coefficients)
        # Without differences of large numbers, or separated classes would leave nothing but rounding.
        wrong_by = np.where(log_odds > 0, negatives, positives) * np.abs(log_odds)
        data = float((wrong_by + labelled * np.log1p(np.exp(-np.abs(log_odds)))).sum())
        return data + 0.5 * float((coefficients * (penalty * coefficients).sum(axis=1)).sum())

    fitted = np.zeros(size)
    fitted_loss = loss(fitted)
    for _ in range(_MAX_STEPS):
        log_odds = _combined(features, fitted)
        p, rest = expit(log_odds), expit(-log_odds)
        residual = positives * rest - negatives * p
        gradient = (penalty * fitted).sum(axis=1) - np.array([(residual * column).sum() for column in features])
        information = _information(features, labelled * p * rest) + penalty
        held = bounded & (fitted <= 0) & (gradient >= 0)
        step = np.zeros(size)
        free = np.flatnonzero(~held)
        if len(free):
            step[free] = _solve(information[np.ix_(free, free)], -gradient[free])
        if -float((gradient * step).sum()) <= _GAIN_LEFT * fitted_loss:
            return LogisticFit(_projected(fitted + step, bounded), held, information)
        scale = 1.0
        while True:
            moved = _projected(fitted + scale * step, bounded)
            moved_loss = loss(moved)
            if moved_loss <= fitted_loss + _ARMIJO * float((gradient * (moved - fitted)).sum()):
                break
            scale /= 2
            if scale < _SMALLEST_SCALE:
                # Rounding of the loss hides what is left to gain.
                return LogisticFit(fitted, held, information)
        fitted, fitted_loss = moved, moved_loss
    raise FitError(f"the logistic fit did not end within {_MAX_STEPS} Newton steps; look for huge weights or features")


def _projected(coefficients: NDArray[np.float64], bounded: NDArray[np.bool_]) -> NDArray[np.float64]:
    return np.where(bounded, np.maximum(coefficients, 0.0), coefficients)


def _combined(features: Sequence[NDArray[np.float64]], coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
    total = np.zeros(len(features[0]))
    for column, coefficient in zip(features, coefficients.tolist(), strict=True):
        total += coefficient * column
    return total


def _information(features: Sequence[NDArray[np.float64]], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums of weight x feature i x feature j, (q, q)."""
    sums = np.empty((len(features), len(features)))
    for i, column in enumerate(features):
        weighted = weight * column
        for j in range(i + 1):
            sums[i, j] = sums[j, i] = (weighted * features[j]).sum()
    return sums


def _solve(matrix: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Newton step; scaled to a unit diagonal first, with a ridge far below the accuracy that is asked for.

    The ridge keeps the system solvable where features are the same up to rounding, or where p rounds to 0 or 1.
    """
    scale = 1 / np.sqrt(np.maximum(np.diagonal(matrix), 1e-300))
    scaled = matrix * scale[:, None] * scale[None, :] + 1e-12 * np.eye(len(right))
    return np.asarray(np.linalg.solve(scaled, right * scale) * scale, dtype=np.float64)
