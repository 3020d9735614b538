"""The reliability diagram: rate against mean probability, with bands that hold for all bins at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from stream_calib.calibration.metrics.evaluated import Evaluated
from stream_calib.calibration.metrics.probability_bins import equal_mass_bins


@dataclass(frozen=True, slots=True, eq=False)
class ReliabilityCurve:
    """Non-empty bins of equal mass in order of probability. All columns have shape (b,) and dtype float64.

    `mean_probability`, `rate`: weighted means; `labelled`: weight; `lower`, `upper`: Clopper-Pearson bounds.
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
    n_bins: int = 15,
    confidence: float = 0.95,
) -> ReliabilityCurve:
    """Points of the reliability diagram; with `confidence` all bands hold together (Bonferroni over the bins).

    Bands use the bins' effective rows where weights differ. Shapes and errors: `Evaluated.of_rows`.
    """
    bins = equal_mass_bins(Evaluated.of_rows(label, probability, weight), n_bins)
    tail = (1 - confidence) / (2 * len(bins.labelled))
    n, rate = bins.effective_rows, bins.rate
    positives = n * rate
    # Quantiles of the beta law; it has no lower (upper) one inside (0, 1) where there are no positives (no negatives).
    lower = np.where(rate > 0, betaincinv(np.maximum(positives, 1e-9), n - positives + 1, tail), 0.0)
    upper = np.where(rate < 1, betaincinv(positives + 1, np.maximum(n - positives, 1e-9), 1 - tail), 1.0)
    return ReliabilityCurve(bins.mean_probability, rate, bins.labelled, lower, upper)
