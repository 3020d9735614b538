"""Platt's logistic fit of the log-odds, from counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.logistic import fit_logistic

_RIDGE = 1e-9
"""On the slope, in nats: decides where the data do not."""


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
    targets (N+ + 1) / (N+ + 2) and 1 / (N- + 2) (Platt, "Probabilistic outputs for support vector machines", 1999,
    section 2.2), so the optimum is finite for separable data and for one class alone. With one distinct log-odds value
    nothing determines the slope; it is 0 then.
    """
    total_positives = float(positives.sum())
    total_negatives = float(labelled.sum()) - total_positives
    high = (total_positives + 1) / (total_positives + 2)
    low = 1 / (total_negatives + 2)
    # About the mean, or a slope that nothing determines would be whatever rounding makes of it.
    middle = float((labelled * log_odds).sum()) / float(labelled.sum())
    fit = fit_logistic(
        [log_odds - middle, np.ones(len(log_odds))],
        labelled,
        positives * high + (labelled - positives) * low,
        penalty=np.diag([_RIDGE, 0.0]),
        at_least_0=[False, False],
    )
    slope, at_middle = fit.coefficients.tolist()
    return PlattFit(slope=slope, intercept=at_middle - slope * middle)
