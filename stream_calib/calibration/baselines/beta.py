"""Beta calibration."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.baselines.parametric import ParametricBaseline
from stream_calib.calibration.fit_input import Counts
from stream_calib.calibration.grid import log_odds
from stream_calib.calibration.logistic import fit_logistic
from stream_calib.calibration.rounding import round_significant

_RIDGE = 1e-6
"""Keeps a and b finite where the classes are separated, and determined where all scores are one."""


class BetaCalibration(ParametricBaseline):
    """Calibrated log-odds = `intercept_` + `a_` ln s - `b_` ln(1 - s), a and b >= 0.

    Parameters: see Baseline. Kull, Silva Filho and Flach, "Beta calibration: a well-founded and easily implemented
    improvement on logistic calibration for binary classifiers", AISTATS 2017, section 3: the map that is right where
    both classes have beta distributed scores. a = b is Platt scaling in log-odds (without Platt's targets), a = b = 1
    with intercept 0 the identity.

    The fit is the logistic regression of the paper's algorithm 1, as the minimum under a, b >= 0; where one of the two
    would be negative this is the algorithm's fit without its term. A score that ranks the wrong way round gets
    a = b = 0: the base rate. A ridge of 1e-6 (in nats, on a and b) keeps them finite for separated classes.
    """

    def _learn(self, counts: Counts) -> None:
        columns = [np.ones(len(counts.score)), *_terms(log_odds(counts.score))]
        fit = fit_logistic(
            columns,
            counts.labelled,
            counts.positives,
            penalty=np.diag([0.0, _RIDGE, _RIDGE]),
            at_least_0=[False, True, True],
        )
        self.intercept_, self.a_, self.b_ = round_significant(fit.coefficients).tolist()

    def _formula(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        log_score, minus_log_rest = _terms(x)
        return np.asarray(self.intercept_ + self.a_ * log_score + self.b_ * minus_log_rest, dtype=np.float64)


def _terms(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """ln s and -ln(1 - s) of s = expit(x)."""
    return -np.logaddexp(0.0, -x), np.logaddexp(0.0, x)
