"""Isotonic regression that is never sure, to be served."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.baselines.isotonic import Isotonic
from stream_calib.calibration.baselines.monotone_blocks import MonotoneBlocks


class HedgedIsotonic(Isotonic):
    """Isotonic regression but for an outer block of n rows of one class only: 1 / (2 n + 2) in place of 0, and so on.

    Nearly every isotonic regression has such blocks, of a few rows, and p_min in place of a rate that these rows cannot
    tell from some per cent costs more log-loss than all else that it gets wrong. The estimate is that of Krichevsky and
    Trofimov, "The performance of universal encoding", 1981, section 2, at most the next block's value.
    """

    def _knots(self, blocks: MonotoneBlocks) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        value, least = blocks.value.copy(), 0.5 / (blocks.labelled + 1)
        if value[0] == 0:
            value[0] = min(least[0], value[min(1, len(value) - 1)])
        if value[-1] == 1:
            value[-1] = max(1 - least[-1], value[max(0, len(value) - 2)])
        return super()._knots(replace(blocks, value=value))
