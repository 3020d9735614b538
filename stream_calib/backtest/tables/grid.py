"""The grid for SQL: an estimate of the bin by logarithm, and for each estimate the scores at which it is one too many
or too few, so that the bin is that of `locate` to the last double."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from stream_calib.calibration.grid import N_BINS, locate
from stream_calib.config_models import ScoreScale

_SIGN = np.uint64(1 << 63)
_OUTERMOST = 1e-5
"""Of scores and their complements: beyond, the estimate is that of the outer bin; log-odds of 1e-5 are -11.5."""


class GridTable(NamedTuple):
    """One row for each bin that an estimate can be, columns (400,)."""

    estimate: NDArray[np.int32]
    """1 .. 400."""
    low: NDArray[np.float64]
    """The smallest score (as it stands in the table) of this bin; below it is the bin before."""
    high: NDArray[np.float64]
    """The smallest score of the next bin."""


def estimate_sql(scale: ScoreScale) -> str:
    """SQL of a bin 1 .. 400 of the score `x`, at most one beside the true one; of scores that passed their checks."""
    if scale == "logit":
        odds = "x"
    else:
        s = "x" if scale == "probability" else "(x / 100)"
        odds = f"ln(greatest({s}, {_OUTERMOST!r}) / greatest(1.0 - {s}, {_OUTERMOST!r}))"
    return f"CAST(floor(greatest(least({odds} * 20 + 201, 400.0), 1.0)) AS INTEGER)"


BIN_SQL = "(estimate + CASE WHEN x >= high THEN 1 WHEN x < low THEN -1 ELSE 0 END)"
"""The bin of the score `x`, with the columns of `GridTable`."""


@cache
def grid_table(scale: ScoreScale) -> GridTable:
    """For scores of this scale as they stand in a table.

    The smallest double of each bin is found by bisection over the doubles in their order.
    """
    bins = np.arange(1, N_BINS)
    bottom, top = {"probability": (-1.0, 2.0), "percent": (-100.0, 200.0), "logit": (-800.0, 800.0)}[scale]
    below = np.full(len(bins), _rank(np.array([bottom]))[0], np.uint64)
    at = np.full(len(bins), _rank(np.array([top]))[0], np.uint64)
    while (at - below > 1).any():
        middle = below + (at - below) // np.uint64(2)
        reached = bin_of(_double(middle), scale) >= bins
        at, below = np.where(reached, middle, at), np.where(reached, below, middle)
    smallest = _double(at)
    return GridTable(bins[:-1].astype(np.int32), smallest[:-1], smallest[1:])


def bin_of(x: NDArray[np.float64], scale: ScoreScale) -> NDArray[np.uint16]:
    """(n,) bins of scores as they stand in a table, as they are read from a record."""
    if scale == "logit":
        return locate(expit(x))[0]
    return locate(np.clip(x if scale == "probability" else x / 100, 0.0, 1.0) + 0.0)[0]


def _rank(x: NDArray[np.float64]) -> NDArray[np.uint64]:
    """(n,) numbers in the order of the doubles."""
    bits = x.view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _double(rank: NDArray[np.uint64]) -> NDArray[np.float64]:
    """The inverse of `_rank`."""
    bits: NDArray[np.uint64] = np.where(rank & _SIGN, rank & ~_SIGN, ~rank)
    return bits.view(np.float64)
