"""The smooth line of a time line."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def trailing_mean(sums: ArrayLike, weights: ArrayLike, length: int) -> NDArray[np.float64]:
    """(d,) mean over each entry and the `length` - 1 before it, of sums (d,) of weights (d,); NaN without weight."""
    totals = [np.concatenate([[0.0], np.cumsum(np.asarray(column, np.float64))]) for column in (sums, weights)]
    stop = np.arange(1, len(totals[0]))
    start = np.maximum(stop - length, 0)
    total, weight = (column[stop] - column[start] for column in totals)
    mean: NDArray[np.float64] = np.full(len(stop), np.nan)
    np.divide(total, weight, out=mean, where=weight > 0)
    return mean
