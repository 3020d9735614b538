"""Grid v1: the fixed fine bins of the raw score in log-odds.

400 bins of width .05 in log-odds between -10 and 10, the two outer ones open, and one bin each for exactly 0.0 and
exactly 1.0: 402 bins. Bin 0 is the score 0.0; bin i of 1 .. 400 covers log-odds [-10 + .05 (i - 1), -10 + .05 i); bin
401 is the score 1.0. Bins 1 and 400 reach on to all smaller and larger scores inside (0, 1).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GRID_VERSION = "v1"
N_BINS = 402
BIN_WIDTH = 0.05
"""Width of a bin in log-odds."""
MAX_LOG_ODDS = 10.0
"""The grid's outer edges are -10 and 10."""

EDGE_LOG_ODDS: NDArray[np.float64] = np.round(np.linspace(-MAX_LOG_ODDS, MAX_LOG_ODDS, N_BINS - 1), 2)
"""(401,) edges of the bins 1 .. 400: bin i lies between EDGE_LOG_ODDS[i - 1] and EDGE_LOG_ODDS[i]."""

LOWER_LOG_ODDS: NDArray[np.float64] = np.concatenate([EDGE_LOG_ODDS[:1], EDGE_LOG_ODDS])
"""(402,) log-odds at which a map is evaluated for the lower edge of each bin; -10 for the score 0.0."""

UPPER_LOG_ODDS: NDArray[np.float64] = np.concatenate([EDGE_LOG_ODDS, EDGE_LOG_ODDS[-1:]])
"""(402,) the same for the upper edge; 10 for the score 1.0."""

CENTRE_LOG_ODDS: NDArray[np.float64] = (LOWER_LOG_ODDS + UPPER_LOG_ODDS) / 2
"""(402,) log-odds of the centres; -10 and 10 for the scores 0.0 and 1.0."""


def log_odds(score: NDArray[np.float64]) -> NDArray[np.float64]:
    """log(s / (1 - s)) of scores in [0, 1], clipped to the grid's outer edges, so finite for 0 and 1 too."""
    with np.errstate(divide="ignore"):
        raw = np.log(score) - np.log1p(-score)
    return np.asarray(np.clip(raw, -MAX_LOG_ODDS, MAX_LOG_ODDS), dtype=np.float64)


def locate(score: NDArray[np.float64]) -> tuple[NDArray[np.uint16], NDArray[np.float64]]:
    """Grid bin (n,) uint16 and position inside it (n,) float64 in [0, 1] of scores in [0, 1].

    The position is linear in log-odds between the bin's edges; it is 0 for the scores 0.0 and 1.0, and the open outer
    parts have the position of the nearest edge. Nothing is checked: what is NaN or outside [0, 1], as a margin that was
    not turned into a probability, gets a bin without meaning.
    """
    steps = (log_odds(score) + MAX_LOG_ODDS) * (1 / BIN_WIDTH)
    whole = np.minimum(steps.astype(np.int64), N_BINS - 3)
    position = np.minimum(steps - whole, 1.0)
    grid_bin = (whole + 1).astype(np.uint16)
    exact_zero, exact_one = score == 0.0, score == 1.0
    grid_bin[exact_zero], position[exact_zero] = 0, 0.0
    grid_bin[exact_one], position[exact_one] = N_BINS - 1, 0.0
    return grid_bin, position
