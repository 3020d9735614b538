"""The reliability diagram: rate against mean probability, with bands that hold for all bins at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stream_calib.calibration.metrics.binomial_bounds import clopper_pearson
from stream_calib.calibration.metrics.evaluated import Evaluated
from stream_calib.calibration.metrics.parameters import checked_confidence, checked_overdispersion
from stream_calib.calibration.metrics.probability_bins import DEFAULT_BINS, Bins, probability_bins


@dataclass(frozen=True, slots=True, eq=False)
class ReliabilityCurve:
    """Non-empty bins in order of probability. All columns have shape (b,) and dtype float64.

    `mean_probability`, `rate`: weighted means; `labelled`: weight; `lower`, `upper`: bounds on the mean true
    probability of the bin's rows.
    """

    mean_probability: NDArray[np.float64]
    rate: NDArray[np.float64]
    labelled: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]


def reliability_curve(
    label: ArrayLike,
    probability: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    n_bins: int = DEFAULT_BINS,
    bins: Bins = "mass",
    confidence: float = 0.95,
    overdispersion: float = 1.0,
) -> ReliabilityCurve:
    """Points of the reliability diagram; with probability `confidence` all bands hold together.

    Clopper-Pearson at n / `overdispersion`, Bonferroni over the bins; n: effective rows where weights differ, which is
    an approximation as any overdispersion is (`binomial_bounds`). Shapes and errors: `Evaluated.of_rows`;
    ConfigurationError for `n_bins` beyond 1 .. 10,000, `confidence` outside (0, 1), `overdispersion` below 1.
    """
    return _curve(Evaluated.of_rows(label, probability, weight), n_bins, bins, confidence, overdispersion)


def reliability_curve_of_counts(
    value: ArrayLike,
    labelled: ArrayLike,
    positives: ArrayLike,
    *,
    n_bins: int = DEFAULT_BINS,
    bins: Bins = "mass",
    confidence: float = 0.95,
    overdispersion: float = 1.0,
) -> ReliabilityCurve:
    """The same from counts (k,) behind each probability (k,). Errors: `Evaluated.of_counts`."""
    return _curve(Evaluated.of_counts(value, labelled, positives), n_bins, bins, confidence, overdispersion)


def _curve(data: Evaluated, n_bins: int, kind: Bins, confidence: float, overdispersion: float) -> ReliabilityCurve:
    bins = probability_bins(data, n_bins, kind)
    tail = (1 - checked_confidence(confidence)) / (2 * len(bins.labelled))
    n = bins.effective_rows / checked_overdispersion(overdispersion)
    lower, upper = clopper_pearson(n * bins.rate, n, tail)
    return ReliabilityCurve(bins.mean_probability, bins.rate, bins.labelled, lower, upper)
