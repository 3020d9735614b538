"""Expected calibration error: plain, debiased, and what a perfect calibrator would show."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from stream_calib.calibration.metrics.evaluated import Evaluated
from stream_calib.calibration.metrics.probability_bins import ProbabilityBins, equal_mass_bins, equal_width_bins

Bins = Literal["mass", "width"]

DEFAULT_BINS = 15


def ece(
    label: ArrayLike,
    probability: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    n_bins: int = DEFAULT_BINS,
    bins: Bins = "mass",
) -> float:
    """Mean over bins, by weight, of |rate - mean probability|, in probability (Naeini et al. 2015).

    `bins`: of equal mass or of equal width. Biased upwards by noise: compare with `ece_of_perfect`. Shapes and errors:
    `Evaluated.of_rows`.
    """
    return _plain(_bins(Evaluated.of_rows(label, probability, weight), n_bins, bins))


def ece_of_counts(
    value: ArrayLike, labelled: ArrayLike, positives: ArrayLike, *, n_bins: int = DEFAULT_BINS, bins: Bins = "mass"
) -> float:
    """The same from counts (k,) behind each probability (k,). Errors: `Evaluated.of_counts`."""
    return _plain(_bins(Evaluated.of_counts(value, labelled, positives), n_bins, bins))


def debiased_squared_ece(
    label: ArrayLike, probability: ArrayLike, weight: ArrayLike | None = None, *, n_bins: int = DEFAULT_BINS
) -> float:
    """Sum over bins of equal mass of w [(rate - mean probability)^2 - rate (1 - rate) / (n - 1)] (Kumar et al. 2019).

    Its mean is the squared error of the bins, 0 for a perfect calibrator, so it can be below 0. w: the bin's share of
    the weight; n: its effective rows. Bins of one effective row have no estimate of their noise and are left out.
    Shapes and errors: `Evaluated.of_rows`.
    """
    return _debiased(equal_mass_bins(Evaluated.of_rows(label, probability, weight), n_bins))


def debiased_squared_ece_of_counts(
    value: ArrayLike, labelled: ArrayLike, positives: ArrayLike, *, n_bins: int = DEFAULT_BINS
) -> float:
    """The same from counts (k,) behind each probability (k,). Errors: `Evaluated.of_counts`."""
    return _debiased(equal_mass_bins(Evaluated.of_counts(value, labelled, positives), n_bins))


def ece_of_perfect(probability: ArrayLike, weight: ArrayLike | None = None, *, n_bins: int = DEFAULT_BINS) -> float:
    """The plain ECE over bins of equal mass that labels drawn with these very probabilities (n,) would show on average.

    Normal approximation: a bin of n effective rows shows sqrt(2 / pi) x sqrt(mean p (1 - p) / n).
    """
    p = np.asarray(probability, dtype=np.float64)
    bins = equal_mass_bins(Evaluated.of_rows(np.zeros(len(p)), p, weight), n_bins)
    noise = np.sqrt(2 / np.pi * bins.mean_variance / bins.effective_rows)
    return float((bins.labelled * noise).sum() / bins.labelled.sum())


def _bins(data: Evaluated, n_bins: int, bins: Bins) -> ProbabilityBins:
    return equal_mass_bins(data, n_bins) if bins == "mass" else equal_width_bins(data, n_bins)


def _plain(bins: ProbabilityBins) -> float:
    gap = np.abs(bins.rate - bins.mean_probability)
    return float((bins.labelled * gap).sum() / bins.labelled.sum())


def _debiased(bins: ProbabilityBins) -> float:
    used = bins.effective_rows > 1
    rate, n = bins.rate[used], bins.effective_rows[used]
    squared = (rate - bins.mean_probability[used]) ** 2 - rate * (1 - rate) / (n - 1)
    return float((bins.labelled[used] * squared).sum() / bins.labelled.sum())
