"""Calibrators given by a formula in the raw log-odds; a snapshot holds them as a table over the grid's edges."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.utils.validation import check_is_fitted

from stream_calib.calibration.baselines.baseline import Baseline
from stream_calib.calibration.grid import EDGE_LOG_ODDS, log_odds
from stream_calib.calibration.input_checks import checked_scores
from stream_calib.calibration.maps.base_map import BaseMap, within_limits
from stream_calib.errors import FitError


class ParametricBaseline(Baseline):
    """Subclasses: `_learn` and `_formula`."""

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        check_is_fitted(self)
        return self._probability_at(log_odds(checked_scores(X)))

    def base_map(self) -> BaseMap:
        """The formula at the 401 edges of the grid, to 12 digits; between them the probability is linear in log-odds.

        Raises FitError where the formula falls with the score: a base map never does.
        """
        check_is_fitted(self)
        fitted = self._formula(EDGE_LOG_ODDS)
        if fitted[0] > fitted[-1]:
            raise FitError(
                f"{type(self).__name__} falls with the score, from log-odds {fitted[0]:.4g} to {fitted[-1]:.4g} over "
                "the grid, and a base map must not: the score ranks the wrong way round; check labels and scores"
            )
        return BaseMap(EDGE_LOG_ODDS, expit(fitted), self.p_min, self._strict_slope)

    def _probability_at(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        calibrated = within_limits(self._formula(x), self.p_min, self._strict_slope) + self._strict_slope * x
        return np.clip(expit(calibrated), self.p_min, 1 - self.p_min)

    @abstractmethod
    def _formula(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Calibrated log-odds, monotone, of raw log-odds within the grid's outer edges."""
