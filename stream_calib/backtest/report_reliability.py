"""Reliability diagrams of the raw score, the current and the best policy, with bands that know of days."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stream_calib.backtest.outcome import RELIABILITY_BINS, PolicyOutcome
from stream_calib.backtest.report_choice import Chosen
from stream_calib.backtest.report_series import counted_days, overdispersion
from stream_calib.calibration.metrics.binomial_bounds import clopper_pearson
from stream_calib.pages.reliability_chart import Curve, counted_reliability, probability_limit
from stream_calib.pages.svg import Drawing

_FEWEST_DAYS = 7
"""With rows, from which on a bin has an overdispersion of its own."""


@dataclass(frozen=True, slots=True)
class DayReliability:
    """Non-empty bins of equal width over the days that count."""

    curve: Curve
    lower_edge: list[float]
    largest_overdispersion: float
    """By which a row counts less, because rows of one day are not independent; the largest of a bin."""


def day_reliability(outcome: PolicyOutcome, raw: bool) -> DayReliability:
    """Of the raw score or of what was served, with bands that hold for all bins together with 95 %.

    Clopper and Pearson 1934 at n / phi, Bonferroni over the bins. phi, at least 1, is the variance of a bin's daily
    residual sums over that of independent rows: with R_d the day's (positives - said) less the bin's own mean residual
    a row, sum R_d^2 / (n rate (1 - rate)) x D / (D - 1) over the bin's D days (Cochran, "Sampling techniques", 1977,
    6.3, a ratio estimator's variance; Korn and Graubard 1998 for its use). Weights of sampled rows are in it too.
    Bins with few days take the phi of all bins together.
    """
    days = counted_days(outcome)
    table = np.array([figures.raw_bins if raw else figures.bins for figures in days], np.float64)
    table = table.reshape(len(days), RELIABILITY_BINS, 3)
    used = np.flatnonzero(table[:, :, 0].sum(axis=0) > 0)
    if not len(used):
        return DayReliability(Curve([], [], [], [], []), [], 1.0)
    labelled, positives, said = (table[:, used, column] for column in range(3))
    n = labelled.sum(axis=0)
    rate = positives.sum(axis=0) / n
    own, whole = overdispersion(labelled, positives - said, rate)
    phi = np.where((labelled > 0).sum(axis=0) >= _FEWEST_DAYS, own, whole)
    lower, upper = clopper_pearson(n / phi * rate, n / phi, 0.05 / (2 * len(used)))
    curve = Curve((said.sum(axis=0) / n).tolist(), rate.tolist(), lower.tolist(), upper.tolist(), n.tolist())
    return DayReliability(curve, (used / RELIABILITY_BINS).tolist(), float(phi.max()))


@dataclass(frozen=True, slots=True)
class ReliabilityChart:
    name: str
    drawing: Drawing
    bins: list[str]
    """Each in words."""
    overdispersion: float
    """The largest of a bin."""


def reliability_charts(shown: Chosen) -> list[ReliabilityChart]:
    """Raw, current and best on the same scale."""
    made = [
        ("raw", "raw score", day_reliability(shown.current, raw=True)),
        ("calibrated", "current policy", day_reliability(shown.current, raw=False)),
    ]
    if shown.best is not None:
        made.append(("best", "best policy", day_reliability(shown.best, raw=False)))
    limit = probability_limit([one.curve for _, _, one in made])
    width = 1 / RELIABILITY_BINS
    return [
        ReliabilityChart(
            name,
            counted_reliability(one.curve, one.lower_edge, width, css, name, "rows", limit),
            one.curve.said("rows"),
            one.largest_overdispersion,
        )
        for css, name, one in made
    ]
