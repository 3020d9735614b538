"""Isotonic regression of a rate on the raw log-odds, as blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from stream_calib.calibration.fit_input import Counts
from stream_calib.calibration.grid import log_odds

_DECIMALS = 11
"""Of log-odds: no knot within -10 and 10 then needs more than 12 significant digits."""


@dataclass(frozen=True, slots=True, eq=False)
class MonotoneBlocks:
    """Blocks of equal fitted value in order of score; columns (b,) float64, `value` strictly increasing.

    `first`, `last`, `mean`: raw log-odds of a block's lowest and highest score and their mean by weight; `value`:
    positives by labelled; `labelled`: weight.
    """

    first: NDArray[np.float64]
    last: NDArray[np.float64]
    mean: NDArray[np.float64]
    value: NDArray[np.float64]
    labelled: NDArray[np.float64]


def monotone_blocks(counts: Counts) -> MonotoneBlocks:
    """Pool-adjacent-violators (Ayer et al., "An empirical distribution function for sampling with incomplete
    information", 1955) by weight, over scores told apart to 11 decimals of their log-odds.
    """
    score_x = np.round(log_odds(counts.score), _DECIMALS)
    starts = np.flatnonzero(np.concatenate([[True], score_x[1:] != score_x[:-1]]))
    x = score_x[starts]
    labelled = np.add.reduceat(counts.labelled, starts)
    positives = np.add.reduceat(counts.positives, starts)
    pooled = isotonic_regression(positives / labelled, weights=labelled)
    begins = np.asarray(pooled.blocks[:-1], dtype=np.intp)
    # The value of a block is the ratio of its own sums, free of the running means' rounding; that may bring blocks
    # together that rounding had kept apart.
    while True:
        weight = np.add.reduceat(labelled, begins)
        value = np.clip(np.add.reduceat(positives, begins) / weight, 0.0, 1.0)
        rises = np.concatenate([[True], value[1:] > value[:-1]])
        if rises.all():
            break
        begins = begins[rises]
    mean = np.add.reduceat(labelled * x, begins) / weight
    first, last = x[begins], x[np.append(begins[1:], len(x)) - 1]
    return MonotoneBlocks(first, last, np.clip(np.round(mean, _DECIMALS), first, last), value, weight)
