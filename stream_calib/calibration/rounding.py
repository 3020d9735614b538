"""Rounding of fitted parameters, so that a snapshot read back holds the very numbers that were fitted."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

SIGNIFICANT_DIGITS = 12


def round_significant(values: ArrayLike) -> NDArray[np.float64]:
    """`values` of any shape, float64, rounded to 12 significant decimal digits; -0.0 becomes 0.0."""
    exact = np.asarray(values, dtype=np.float64)
    rounded = [float(f"{v:.{SIGNIFICANT_DIGITS}g}") for v in exact.ravel().tolist()]
    return np.array(rounded, dtype=np.float64).reshape(exact.shape) + 0.0
