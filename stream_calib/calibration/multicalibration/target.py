"""What an audit asks of a map: how large a cell must be to count, and how far off it may be."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.intervals import interval_of, interval_tolerance, log_odds_intervals
from stream_calib.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class AuditTarget:
    """Every audit cell (group, interval) of at least `gamma` of the mass is off by at most alpha of its interval.

    `gamma`: share of the labelled rows, in (0, 1]. `alpha_abs`, `alpha_rel`: an interval's alpha is max(`alpha_abs`,
    `alpha_rel` x its middle), in probability. `edges`: those of the intervals, from 0 to 1, in probability.
    Raises ConfigurationError for other numbers.
    """

    gamma: float = 0.01
    alpha_abs: float = 0.02
    alpha_rel: float = 0.1
    edges: tuple[float, ...] = field(default_factory=log_odds_intervals)

    def __post_init__(self) -> None:
        if not 0 < self.gamma <= 1:
            raise ConfigurationError(f"gamma = {self.gamma}; it is a share of the rows, in (0, 1]")
        interval_tolerance(self.edges, self.alpha_abs, self.alpha_rel)

    @property
    def intervals(self) -> int:
        """Their number m."""
        return len(self.edges) - 1

    @property
    def alpha(self) -> NDArray[np.float64]:
        """(m,) largest allowed |residual| in each interval, in probability."""
        return interval_tolerance(self.edges, self.alpha_abs, self.alpha_rel)

    def interval_of(self, probability: NDArray[np.float64]) -> NDArray[np.intp]:
        """Interval (n,) of probabilities (n,)."""
        return interval_of(self.edges, probability)

    def interval_name(self, interval: int) -> str:
        """As `[0.119, 0.269)`."""
        last = interval == self.intervals - 1
        return f"[{self.edges[interval]:.3g}, {self.edges[interval + 1]:.3g}{']' if last else ')'}"
