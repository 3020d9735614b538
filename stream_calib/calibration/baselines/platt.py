"""Platt scaling in log-odds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.baselines.parametric import ParametricBaseline
from stream_calib.calibration.fit_input import Counts
from stream_calib.calibration.grid import log_odds
from stream_calib.calibration.platt import PlattFit, fit_platt
from stream_calib.calibration.rounding import round_significant


class Platt(ParametricBaseline):
    """Calibrated log-odds = `intercept_` + `slope_` x raw log-odds, fitted with Platt's targets (see `fit_platt`).

    Parameters: see Baseline. Platt, "Probabilistic outputs for support vector machines", 1999, section 2.2, has the
    machine's output where the raw log-odds stand here.
    """

    def _learn(self, counts: Counts) -> None:
        fit = fit_platt(log_odds(counts.score), counts.labelled, counts.positives)
        self.slope_, self.intercept_ = round_significant([fit.slope, fit.intercept]).tolist()

    def _formula(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        return PlattFit(self.slope_, self.intercept_).log_odds_at(x)
