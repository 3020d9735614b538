"""Reliability diagrams of the raw score, the current and the best policy, with bands that know of days."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stream_calib.backtest.comparison.bootstrap import DayDraws
from stream_calib.backtest.comparison.figures import scored_days
from stream_calib.backtest.outcome import RELIABILITY_BINS, PolicyOutcome
from stream_calib.backtest.report.choice import Chosen
from stream_calib.calibration.metrics.binomial_bounds import clopper_pearson
from stream_calib.pages.reliability_chart import Curve, counted_reliability, probability_limit
from stream_calib.pages.svg import Drawing


@dataclass(frozen=True, slots=True)
class DayReliability:
    """Non-empty bins of equal width over the days that count."""

    curve: Curve
    lower_edge: list[float]
    overdispersion: list[float]
    """By which a row of the bin counts less, because rows of the same days are not independent."""


def day_reliability(outcome: PolicyOutcome, raw: bool) -> DayReliability:
    """Of the raw score or of what was served, with bands that hold for all bins together with 95 %.

    Clopper and Pearson 1934 at n / phi, Bonferroni over the bins. phi, at least 1, is the variance of the bin's sum of
    (positive - said), less the bin's own mean, by blocks of days (`DayDraws.variance`), over n rate (1 - rate), that of
    independent rows; Korn and Graubard 1998. Weights of sampled rows are in it too. Raises BacktestError without
    labels.
    """
    days = scored_days(outcome)
    table = np.array([figures.raw_bins if raw else figures.bins for figures in days], np.float64)
    table = table.reshape(len(days), RELIABILITY_BINS, 3)
    used = np.flatnonzero(table[:, :, 0].sum(axis=0) > 0)
    labelled, positives, said = (table[:, used, column] for column in range(3))
    n = labelled.sum(axis=0)
    rate = positives.sum(axis=0) / n
    off = positives - said
    varied = DayDraws(len(days), 0, draws=1).variance(off - labelled * (off.sum(axis=0) / n))
    independent = n * rate * (1 - rate)
    phi = np.fmax(np.divide(varied, independent, out=np.ones(len(n)), where=independent > 0), 1.0)
    lower, upper = clopper_pearson(n / phi * rate, n / phi, 0.05 / (2 * len(used)))
    curve = Curve((said.sum(axis=0) / n).tolist(), rate.tolist(), lower.tolist(), upper.tolist(), n.tolist())
    return DayReliability(curve, (used / RELIABILITY_BINS).tolist(), phi.tolist())


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
            max(one.overdispersion),
        )
        for css, name, one in made
    ]
