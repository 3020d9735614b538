"""Maps that keep ranks: plateaus are tilted, scores are read at a fixed resolution, nothing is tied beyond the grid.

No map from one float64 to another within [p_min, 1 - p_min] can keep all scores apart: there are fewer numbers there
than between 0 and 1. What can be kept apart, at the price of at most 5e-6 in probability, are scores that differ in
single precision (float32), of which neighbours are at least 2^-24 = 6e-8 apart in log-odds:

* every probability is multiplied by 1 + TILT x (raw log-odds), so a plateau rises by some units in the last place from
  one step of the lattice below to the next, also at a probability near 1. In log-odds the base map's STRICT_SLOPE does
  the same for probabilities near 0;
* scores are read at the nearest step of a lattice of .05 / 2^21 = 2.4e-8 in log-odds, so rounding can tie scores that
  are nearer to each other than two steps, but never turn their order round. The grid's edges lie on the lattice;
* beyond the grid's outer edges `predict` goes on, all but flat.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.girb.knots import Knots
from stream_calib.calibration.grid import BIN_WIDTH, MAX_LOG_ODDS
from stream_calib.calibration.maps.base_map import STRICT_SLOPE, BaseMap

TILT = 2e-8
"""Relative rise of a plateau's probability per unit of raw log-odds."""

_STEPS_PER_UNIT = 2**21 / BIN_WIDTH
_SMALLEST = 1e-9
"""Probability below which rounding of the log-odds would outweigh the tilt."""
_LOWEST_LOG_ODDS, _HIGHEST_LOG_ODDS = -104.0, 40.0
"""Where the scores 0 and 1 are read: beyond every other one in single precision, and above every float64 below 1."""
_ROOM = 2e-5, 1.5e-6
"""Relative room at p_min, and absolute room at 1 - p_min, for slope, tilt and tails together."""
_NARROWEST = 1e-10
"""Log-odds between a bend and the knots around it, so that they differ in 12 significant digits."""
_APART = 2e-11
"""Relative distance that neighbouring knots keep in 12 significant digits."""


def value_limits(p_min: float) -> tuple[float, float]:
    """The limits of the values of a strict map's knots, within which it stays in [p_min, 1 - p_min]; low >= high where
    p_min leaves no room."""
    relative, absolute = _ROOM
    return max(p_min, _SMALLEST) * (1 + relative), 1 - p_min * (1 + relative) - absolute


def strict_map(given: Knots, p_min: float) -> BaseMap:
    """The map of these knots, tilted so that it increases strictly from one end of the grid to the other."""
    x, value = _clipped(given, value_limits(p_min))
    before, after = x[0] > -MAX_LOG_ODDS, x[-1] < MAX_LOG_ODDS
    x = np.concatenate([[-MAX_LOG_ODDS][: int(before)], x, [MAX_LOG_ODDS][: int(after)]])
    value = np.concatenate([value[:1][: int(before)], value, value[-1:][: int(after)]])
    # Within a plateau no knots: they may lie so near to each other that 12 digits do not show the tilt between them.
    inner = np.append(np.append(False, (value[1:-1] == value[:-2]) & (value[1:-1] == value[2:])), False)
    x, value = x[~inner[: len(x)]], value[~inner[: len(x)]]
    value = value * (1 + TILT * x)
    step = _APART * np.arange(len(x))
    apart = np.maximum.accumulate(np.log(value) - step)
    value = np.where(apart > np.log(value) - step, np.exp(apart + step), value)
    return BaseMap(x, value, p_min, STRICT_SLOPE)


def _clipped(given: Knots, limits: tuple[float, float]) -> Knots:
    """Knots of the clipped map: it has a bend where the given one crosses a limit."""
    x, value = given
    for limit in limits:
        after = int(np.searchsorted(value, limit))
        if 0 < after < len(value) and value[after] > limit:
            share = (limit - value[after - 1]) / (value[after] - value[after - 1])
            bend = x[after - 1] + share * (x[after] - x[after - 1])
            if x[after - 1] + _NARROWEST < bend < x[after] - _NARROWEST:
                x, value = np.insert(x, after, bend), np.insert(value, after, limit)
    return x, np.clip(value, *limits)


def strict_probability(base_map: BaseMap, score: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities (n,) of scores (n,) in [0, 1], by a map of `strict_map`: increasing, see this module."""
    with np.errstate(divide="ignore"):
        raw = np.clip(np.log(score) - np.log1p(-score), _LOWEST_LOG_ODDS, _HIGHEST_LOG_ODDS)
    x = np.rint((raw + MAX_LOG_ODDS) * _STEPS_PER_UNIT) / _STEPS_PER_UNIT - MAX_LOG_ODDS
    p = base_map.probability_at(np.clip(x, -MAX_LOG_ODDS, MAX_LOG_ODDS))
    p *= 1 + TILT * np.minimum(x + MAX_LOG_ODDS, 0.0)
    p += TILT * np.maximum(x - MAX_LOG_ODDS, 0.0)
    return p
