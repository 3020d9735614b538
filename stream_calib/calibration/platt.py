"""Platt's logistic fit of the log-odds, from counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

_MAX_STEPS = 100
_SMALLEST_STEP = 1e-10


@dataclass(frozen=True, slots=True)
class PlattFit:
    """Calibrated log-odds = intercept + slope * raw log-odds."""

    slope: float
    intercept: float

    def log_odds_at(self, log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Calibrated log-odds (n,) of raw log-odds (n,)."""
        return self.intercept + self.slope * log_odds


def fit_platt(log_odds: NDArray[np.float64], labelled: NDArray[np.float64], positives: NDArray[np.float64]) -> PlattFit:
    """Logistic regression of the label on the raw log-odds, from counts per bin, weighted ones included.

    `log_odds`, `labelled`, `positives` have shape (k,); `positives` <= `labelled`. Labels are replaced by Platt's
    targets (N+ + 1) / (N+ + 2) and 1 / (N- + 2) (Platt 1999), so the optimum is finite for separable data and for one
    class alone; Newton with backtracking follows Lin, Lin and Weng, "A note on Platt's probabilistic outputs", 2007.
    With one distinct log-odds value the slope is not determined; the fit is right at that value.
    """
    total_positives = float(positives.sum())
    total_negatives = float(labelled.sum()) - total_positives
    high = (total_positives + 1) / (total_positives + 2)
    low = 1 / (total_negatives + 2)
    target = positives * high + (labelled - positives) * low

    def loss(parameters: NDArray[np.float64]) -> float:
        predicted = parameters[0] * log_odds + parameters[1]
        return float((labelled * np.logaddexp(0.0, predicted) - target * predicted).sum())

    fitted = np.array([0.0, np.log((total_positives + 1) / (total_negatives + 1))])
    fitted_loss = loss(fitted)
    for _ in range(_MAX_STEPS):
        p = expit(fitted[0] * log_odds + fitted[1])
        residual = target - labelled * p
        weight = labelled * p * (1 - p)
        cross = (weight * log_odds).sum()
        hessian = np.array([[(weight * log_odds**2).sum(), cross], [cross, weight.sum()]])
        gradient = np.array([(residual * log_odds).sum(), residual.sum()])
        # A ridge relative to the curvature keeps the system solvable when the log-odds have one distinct value.
        step = np.linalg.solve(hessian + np.eye(2) * (1e-9 * hessian.trace() + 1e-300), gradient)
        scale, descent = 1.0, float(gradient @ step)
        while scale > _SMALLEST_STEP and loss(fitted + scale * step) > fitted_loss - 1e-4 * scale * descent:
            scale /= 2
        if scale <= _SMALLEST_STEP:
            break
        fitted = fitted + scale * step
        fitted_loss = loss(fitted)
        if np.abs(scale * step).max() < _SMALLEST_STEP:
            break
    return PlattFit(slope=float(fitted[0]), intercept=float(fitted[1]))
