"""Intervals of probability for audits: spaced in log-odds, each with the residual that is allowed in it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from stream_calib.calibration.rounding import round_significant
from stream_calib.errors import ConfigurationError

MOST_INTERVALS = 10_000


def log_odds_intervals(width: float = 1.0, limit: float = 7.0) -> tuple[float, ...]:
    """Edges (m + 1,) from 0 to 1 of intervals that are `width` wide in log-odds between -`limit` and `limit`.

    The two outer ones reach on to 0 and 1, so m = 2 x `limit` / `width` + 2. Edges are rounded to 12 significant
    digits. Raises ConfigurationError unless 2 x `limit` is `width` times a whole number from 1 to 1,000.
    """
    steps = round(2 * limit / width) if width > 0 and np.isfinite([width, limit]).all() else 0
    if not (1 <= steps <= 1_000 and abs(steps * width - 2 * limit) <= 1e-9 * limit):
        raise ConfigurationError(
            f"intervals of width {width} do not fill the log-odds from -{limit} to {limit}; choose a width that "
            "divides twice the limit into 1 to 1,000 parts"
        )
    inner = round_significant(expit(np.linspace(-limit, limit, steps + 1)))
    return tuple(checked_edges([0.0, *inner.tolist(), 1.0]).tolist())


def interval_of(edges: ArrayLike, probability: NDArray[np.float64]) -> NDArray[np.intp]:
    """Interval (n,) of probabilities (n,) in [0, 1]: j for [edges[j], edges[j + 1]), the last one closed.

    Raises ConfigurationError for edges that do not increase from 0 to 1.
    """
    return np.searchsorted(checked_edges(edges)[1:-1], probability, side="right").astype(np.intp)


def interval_tolerance(edges: Sequence[float], alpha_abs: float, alpha_rel: float) -> NDArray[np.float64]:
    """Largest allowed |residual| (m,) in each interval: max(`alpha_abs`, `alpha_rel` x its middle), in probability.

    The middle is (edges[j] + edges[j + 1]) / 2. With a small `alpha_abs`, intervals of rare events ask for residuals
    that are small beside their probabilities. Raises ConfigurationError for edges that do not increase from 0 to 1,
    and unless both are in [0, 1] and `alpha_abs` > 0.
    """
    at = checked_edges(edges)
    if not (0 < alpha_abs <= 1 and 0 <= alpha_rel <= 1):
        raise ConfigurationError(
            f"alpha_abs = {alpha_abs} must lie in (0, 1], alpha_rel = {alpha_rel} in [0, 1]: they are residuals, "
            "in probability and as a share of it"
        )
    return np.maximum(alpha_abs, alpha_rel * (at[:-1] + at[1:]) / 2)


def checked_edges(edges: ArrayLike) -> NDArray[np.float64]:
    """Edges (m + 1,) of intervals of probability. Raises ConfigurationError where they do not increase from 0 to 1."""
    at = np.asarray(edges, dtype=np.float64)
    ends = at.ndim == 1 and 2 <= len(at) <= MOST_INTERVALS + 1 and (at[0], at[-1]) == (0, 1)
    if not (ends and (np.diff(at) > 0).all()):
        raise ConfigurationError(
            f"edges of intervals must increase from 0 to 1, {MOST_INTERVALS:,} intervals at most; "
            f"got {at.ravel()[:20].tolist()}"
        )
    return at
