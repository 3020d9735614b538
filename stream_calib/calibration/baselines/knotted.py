"""Calibrators given by knots: their base map is the calibrator."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from stream_calib.calibration.baselines.baseline import Baseline
from stream_calib.calibration.baselines.monotone_blocks import MonotoneBlocks, monotone_blocks
from stream_calib.calibration.fit_input import Counts
from stream_calib.calibration.grid import log_odds
from stream_calib.calibration.input_checks import checked_scores
from stream_calib.calibration.maps.base_map import BaseMap


class KnottedBaseline(Baseline):
    """Isotonic regression with knots of the subclass's choice; constant outside of the fitted scores.

    Between knots the probability is linear in the raw log-odds. A fit from cells smooths what a grid bin holds, a fit
    from rows follows it: mean difference of the probability .0025 (isotonic) and .0020 (centered) for the 277,337
    flights, below .002 from a million rows on; the distance to the truth is the same.
    """

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        return self.base_map().probability_at(log_odds(checked_scores(X)))

    def base_map(self) -> BaseMap:
        check_is_fitted(self, "base_map_")
        fitted: BaseMap = self.base_map_
        return fitted

    def _learn(self, counts: Counts) -> None:
        x, value = self._knots(monotone_blocks(counts))
        self.base_map_ = BaseMap(x, value, self.p_min, self._strict_slope)

    @abstractmethod
    def _knots(self, blocks: MonotoneBlocks) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Raw log-odds (k,), strictly increasing, and probabilities (k,) of the knots."""


def both_ends(blocks: MonotoneBlocks, flat: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Knots at both ends of the blocks that stay `flat` (b,) and at the means of the others."""
    lower = np.where(flat, blocks.first, blocks.mean)
    two = flat & (blocks.last > blocks.first)
    x = np.stack([lower, blocks.last], axis=1)
    value = np.stack([blocks.value, blocks.value], axis=1)
    used = np.stack([np.ones_like(two), two], axis=1)
    return x[used], value[used]
