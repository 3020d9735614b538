"""Centered isotonic regression."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.baselines.knotted import KnottedBaseline, both_ends
from stream_calib.calibration.baselines.monotone_blocks import MonotoneBlocks


class CenteredIsotonic(KnottedBaseline):
    """Isotonic regression whose plateaus are drawn together to their centres, so that it rises between them.

    Parameters: see Baseline. Oron and Flournoy, "Centered isotonic regression: point and interval estimation for
    dose-response studies", Statistics in Biopharmaceutical Research 9, 2017, section 2, with the raw log-odds as dose:
    each block of equal value becomes one knot at its mean log-odds by weight; plateaus at 0 and at 1 stay, and the map
    is constant outside of the first and the last knot.
    """

    def _knots(self, blocks: MonotoneBlocks) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return both_ends(blocks, (blocks.value == 0.0) | (blocks.value == 1.0))
