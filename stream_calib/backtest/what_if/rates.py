"""The rate of outcomes that a group has at a score, in a month: what an injected change of outcomes starts from.

A cell of a few events says next to nothing of its rate, so it is taken from a fit: log-odds of the outcome = slope x
log-odds of the raw score + intercept (Platt's, over the whole stretch) + an offset of the calendar month, with a normal
prior. Within a month days differ; the rate is the one that the score says on average.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from stream_calib.calibration.grid import CENTRE_LOG_ODDS, N_BINS
from stream_calib.calibration.platt import fit_platt

MONTH_RIDGE = 4.0
"""Of a month's offset, in nats: a standard deviation of .5 in log-odds, about what months of flights differ by."""
_STEPS = 100
_LONGEST_STEP = 1.0
_CLOSE = 1e-10


class BinCounts(NamedTuple):
    """Labelled events of one pane and group: `grid_bin` (k,) <u2, `labelled`, `positives` (k,) <i8."""

    month: int
    grid_bin: NDArray[np.uint16]
    labelled: NDArray[np.int64]
    positives: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class OutcomeRates:
    """Log-odds (N_BINS,) of each month that had labels."""

    log_odds: dict[int, NDArray[np.float64]]
    overall: NDArray[np.float64]
    """(N_BINS,): of months that had none."""

    def of(self, month: int, grid_bin: NDArray[np.uint16]) -> NDArray[np.float64]:
        """Log-odds (k,) of a positive outcome in bins (k,)."""
        return self.log_odds.get(month, self.overall)[grid_bin]


def month_of(time_ms: int) -> int:
    """Calendar months since 1970-01, UTC."""
    return int(np.datetime64(time_ms, "ms").astype("datetime64[M]").astype(np.int64))


def fit_rates(counts: Iterable[BinCounts]) -> OutcomeRates | None:
    """The rates by bin and month; None where nothing has a label."""
    labelled: dict[int, NDArray[np.float64]] = {}
    positives: dict[int, NDArray[np.float64]] = {}
    for one in counts:
        for sums, values in ((labelled, one.labelled), (positives, one.positives)):
            of_month = sums.setdefault(one.month, np.zeros(N_BINS))
            of_month += np.bincount(one.grid_bin, weights=values, minlength=N_BINS)
    total, total_positives = sum(labelled.values(), np.zeros(N_BINS)), sum(positives.values(), np.zeros(N_BINS))
    if not total.sum():
        return None
    overall = fit_platt(CENTRE_LOG_ODDS, total, total_positives).log_odds_at(CENTRE_LOG_ODDS)
    by_month = {month: overall + _offset(overall, labelled[month], positives[month]) for month in sorted(labelled)}
    return OutcomeRates(by_month, overall)


def _offset(log_odds: NDArray[np.float64], labelled: NDArray[np.float64], positives: NDArray[np.float64]) -> float:
    """Minimises log-loss + MONTH_RIDGE x offset^2 / 2, which is convex, by Newton steps of a bounded length."""
    offset = 0.0
    for _ in range(_STEPS):
        p = expit(log_odds + offset)
        gradient = float((labelled * p - positives).sum()) + MONTH_RIDGE * offset
        step = gradient / (float((labelled * p * (1 - p)).sum()) + MONTH_RIDGE)
        offset -= min(max(step, -_LONGEST_STEP), _LONGEST_STEP)
        if abs(step) < _CLOSE:
            break
    return offset
