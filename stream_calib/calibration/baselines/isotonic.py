"""Isotonic regression."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.baselines.knotted import KnottedBaseline, both_ends
from stream_calib.calibration.baselines.monotone_blocks import MonotoneBlocks


class Isotonic(KnottedBaseline):
    """The non-decreasing map of least squares and of least log-loss at the fitted scores (plateaus and all).

    Parameters: see Baseline. Zadrozny and Elkan, "Transforming classifier scores into accurate multiclass probability
    estimates", KDD 2002, section 3. At the fitted scores it is scikit-learn's IsotonicRegression; between them it is
    linear in log-odds, theirs in the score.
    """

    def _knots(self, blocks: MonotoneBlocks) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return both_ends(blocks, np.ones(len(blocks.value), dtype=np.bool_))
