"""Columns of a policy's days for the report: by periods of days, and pooled over all that count."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.backtest.outcome import PolicyOutcome
from stream_calib.pages.trailing_mean import trailing_mean

DAY_MS = 86_400_000
_MOST_PERIODS = 420

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PeriodSeries:
    """Sums by period of `days` days, the last may be shorter. All columns are (p,)."""

    days: int
    start_ms: NDArray[np.int64]
    labelled: Column
    raw_loss: Column
    """Sum of log-losses; so the next."""
    served_loss: Column
    psi: Column
    """Largest; NaN where there was none."""

    @property
    def middle_ms(self) -> list[float]:
        return [float(start + self.days * DAY_MS / 2) for start in self.start_ms.tolist()]

    def mean(self, sums: Column) -> Column:
        """(p,) a labelled row; NaN where there is none."""
        return trailing_mean(sums, self.labelled, 1)


def period_days(days: int) -> int:
    """Days a period, so that a line over `days` days stays readable: 1, or whole weeks."""
    return 1 if days <= _MOST_PERIODS else 7 * math.ceil(days / 7 / _MOST_PERIODS)


def period_series(outcome: PolicyOutcome) -> PeriodSeries:
    """Of all days, at least one, those that warm up too."""
    day = np.array([figures.day for figures in outcome.days], np.int64)
    first = int(day[0])
    length = period_days(int(day[-1]) - first + 1)
    period = (day - first) // length
    p = int(period[-1]) + 1
    psi = np.full(p, np.nan)
    values = np.array([math.nan if figures.psi is None else figures.psi for figures in outcome.days], np.float64)
    np.fmax.at(psi, period, values)

    def sums(values: list[float]) -> Column:
        return np.asarray(np.bincount(period, np.asarray(values, np.float64), minlength=p), np.float64)

    return PeriodSeries(
        length,
        (first + np.arange(p) * length) * DAY_MS,
        sums([figures.served.labelled for figures in outcome.days]),
        sums([figures.raw.log_loss for figures in outcome.days]),
        sums([figures.served.log_loss for figures in outcome.days]),
        psi,
    )
