"""Identity: the raw score is the probability."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from stream_calib.calibration.baselines.parametric import ParametricBaseline
from stream_calib.calibration.fit_input import Counts
from stream_calib.calibration.input_checks import checked_scores


class Identity(ParametricBaseline):
    """The score itself, within [p_min, 1 - p_min]; a fit learns nothing and refuses what the others refuse.

    Parameters: see Baseline. Unless `strict`, `predict` returns scores bit for bit, beyond the grid's edges too.
    """

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        if self.strict:
            return super().predict(X)
        check_is_fitted(self)
        return np.clip(checked_scores(X), self.p_min, 1 - self.p_min)

    def _learn(self, counts: Counts) -> None:
        self.rows_ = counts.rows

    def _formula(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        return x
