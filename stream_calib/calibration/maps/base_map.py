"""The base map: from raw log-odds to calibrated log-odds, the same for every group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from stream_calib.calibration.grid import LOWER_LOG_ODDS, MAX_LOG_ODDS, UPPER_LOG_ODDS
from stream_calib.calibration.rounding import round_significant
from stream_calib.errors import FitError

EDGES: NDArray[np.float64] = np.stack([LOWER_LOG_ODDS, UPPER_LOG_ODDS], axis=1)
"""(402, 2) raw log-odds of the lower and the upper edge of every grid bin."""

STRICT_SLOPE = 1e-6
"""Calibrated log-odds added per unit of raw log-odds where ranks are to be kept.

It moves a log-odds by at most 1e-5 (raw log-odds lie within -10 and 10), hence a probability by at most 2.5e-6, and two
neighbouring edges of the grid stay at least 5e-8 apart in log-odds, more than 400 units in the last place of a
probability as near to 1 as 1 - 1e-6.
"""


def within_limits(log_odds: NDArray[np.float64], p_min: float, strict_slope: float) -> NDArray[np.float64]:
    """Log-odds (of any shape) within [p_min, 1 - p_min], with room for the strict slope, which is added later."""
    limit = float(logit(1 - p_min)) - strict_slope * MAX_LOG_ODDS
    return np.clip(log_odds, -limit, limit)


@dataclass(frozen=True, slots=True, eq=False)
class BaseMap:
    """A non-decreasing map given by knots.

    `log_odds` (k,) float64: raw log-odds of the knots, strictly increasing; `value` (k,) float64: probabilities at
    the knots, non-decreasing; k >= 1. `p_min`: values are kept within [p_min, 1 - p_min]; 0 <= p_min < .5.
    `strict_slope`: 0, or the log-odds added per unit of raw log-odds so that the map increases strictly (see
    STRICT_SLOPE). The numbers are rounded to 12 significant digits when the map is made, so a map read back from text
    is the same map. Raises FitError where the knots are not as described.
    """

    log_odds: NDArray[np.float64]
    value: NDArray[np.float64]
    p_min: float
    strict_slope: float

    def __post_init__(self) -> None:
        x, value = round_significant(self.log_odds), round_significant(self.value)
        if x.ndim != 1 or x.shape != value.shape or not len(x):
            raise FitError(f"a base map needs as many values as knots, at least one; got {x.shape} and {value.shape}")
        if not (np.isfinite(x).all() and (np.diff(x) > 0).all()):
            raise FitError("knots of a base map must be finite and strictly increase; merge equal ones first")
        if not ((value >= 0).all() and (value <= 1).all() and (np.diff(value) >= 0).all()):
            raise FitError("values of a base map must be non-decreasing probabilities; use isotonic regression")
        if not (0 <= self.p_min < 0.5 and self.strict_slope >= 0):
            raise FitError(f"p_min = {self.p_min} must lie in [0, .5), strict_slope = {self.strict_slope} be 0 or more")
        object.__setattr__(self, "log_odds", x)
        object.__setattr__(self, "value", value)

    def log_odds_at(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Calibrated log-odds (n,) of raw log-odds (n,) within the grid's outer edges.

        The probability is linear in the raw log-odds between knots and constant outside of them.
        """
        return self.finish(self.start(x), x, self.p_min)

    def edges(self) -> NDArray[np.float64]:
        """Calibrated log-odds (402, 2) at the lower and the upper edge of every grid bin."""
        return self.log_odds_at(EDGES)

    def start(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """What the knots say: log-odds (of x's shape) before any offset and before the strict slope."""
        probability = np.clip(np.interp(x, self.log_odds, self.value), self.p_min, 1 - self.p_min)
        return np.asarray(logit(probability), dtype=np.float64)

    def limited(self, log_odds: NDArray[np.float64], p_min: float) -> NDArray[np.float64]:
        """Within [p_min, 1 - p_min], with room for the strict slope, which is added later."""
        return within_limits(log_odds, p_min, self.strict_slope)

    def finish(self, log_odds: NDArray[np.float64], x: NDArray[np.float64], p_min: float) -> NDArray[np.float64]:
        """Limits of [p_min, 1 - p_min], then the strict slope, on `start(x)` plus offsets.

        The limits leave room for the slope, which comes last, so the map increases strictly where it is at a limit too.
        """
        return self.limited(log_odds, p_min) + self.strict_slope * x

    def probability_at(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Calibrated probabilities (n,) in [p_min, 1 - p_min] of raw log-odds (n,) within the grid's outer edges."""
        return np.clip(expit(self.log_odds_at(x)), self.p_min, 1 - self.p_min)

    def to_lists(self) -> dict[str, Any]:
        """Plain lists and numbers for a snapshot."""
        return {
            "log_odds": self.log_odds.tolist(),
            "value": self.value.tolist(),
            "p_min": self.p_min,
            "strict_slope": self.strict_slope,
        }

    @classmethod
    def from_lists(cls, stored: dict[str, Any]) -> BaseMap:
        """The map that `to_lists` was called on, bit for bit. Raises FitError where the knots are those of no map."""
        return cls(np.array(stored["log_odds"]), np.array(stored["value"]), stored["p_min"], stored["strict_slope"])
