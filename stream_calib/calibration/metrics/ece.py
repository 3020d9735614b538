"""Expected calibration error: plain, debiased, and what a perfect calibrator would show."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from stream_calib.calibration.metrics.evaluated import Evaluated
from stream_calib.calibration.metrics.probability_bins import DEFAULT_BINS, Bins, ProbabilityBins, probability_bins


def ece(
    label: ArrayLike,
    probability: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    n_bins: int = DEFAULT_BINS,
    bins: Bins = "mass",
) -> float:
    """Mean over bins, by weight, of |rate - mean probability|, in probability (Naeini et al. 2015, section 4).

    `bins`: of equal mass or of equal width. Biased upwards by noise: compare with `ece_of_perfect`. Shapes and errors:
    `Evaluated.of_rows`; ConfigurationError for `n_bins` beyond 1 .. 10,000.
    """
    return _plain(probability_bins(Evaluated.of_rows(label, probability, weight), n_bins, bins))


def ece_of_counts(
    value: ArrayLike, labelled: ArrayLike, positives: ArrayLike, *, n_bins: int = DEFAULT_BINS, bins: Bins = "mass"
) -> float:
    """The same from counts (k,) behind each probability (k,). Errors: `Evaluated.of_counts`."""
    return _plain(probability_bins(Evaluated.of_counts(value, labelled, positives), n_bins, bins))


def debiased_squared_ece(
    label: ArrayLike, probability: ArrayLike, weight: ArrayLike | None = None, *, n_bins: int = DEFAULT_BINS
) -> float:
    """Sum over bins of equal mass of w [(rate - mean probability)^2 - rate (1 - rate) / (n - 1)].

    That is the debiased estimator of Kumar, Liang, Ma 2019, section 5. Its mean is the squared error of the bins, 0 for
    a perfect calibrator, so it can be below 0. w: the bin's share of the weight; n: its effective rows. Bins of one
    effective row have no estimate of their noise and are left out. Shapes and errors: as `ece`.
    """
    return _debiased(probability_bins(Evaluated.of_rows(label, probability, weight), n_bins, "mass"))


def debiased_squared_ece_of_counts(
    value: ArrayLike, labelled: ArrayLike, positives: ArrayLike, *, n_bins: int = DEFAULT_BINS
) -> float:
    """The same from counts (k,) behind each probability (k,). Errors: `Evaluated.of_counts`."""
    return _debiased(probability_bins(Evaluated.of_counts(value, labelled, positives), n_bins, "mass"))


def ece_of_perfect(
    probability: ArrayLike, weight: ArrayLike | None = None, *, n_bins: int = DEFAULT_BINS, bins: Bins = "mass"
) -> float:
    """The plain ECE that labels drawn with these very probabilities (n,) would show on average.

    Normal approximation: the mean absolute value of a bin's noise is sqrt(2 / pi) x its standard deviation,
    sqrt(mean p (1 - p) / n), n: its effective rows. Errors: as `ece`.
    """
    p = np.asarray(probability, dtype=np.float64)
    return _noise(probability_bins(Evaluated.of_rows(np.zeros(p.shape), p, weight), n_bins, bins))


def ece_of_perfect_of_counts(
    value: ArrayLike, labelled: ArrayLike, *, n_bins: int = DEFAULT_BINS, bins: Bins = "mass"
) -> float:
    """The same from counts (k,) behind each probability (k,). Errors: `Evaluated.of_counts`."""
    n = np.asarray(labelled, dtype=np.float64)
    return _noise(probability_bins(Evaluated.of_counts(value, n, np.zeros(n.shape)), n_bins, bins))


def _plain(bins: ProbabilityBins) -> float:
    return float((bins.labelled * bins.gap).sum() / bins.labelled.sum())


def _debiased(bins: ProbabilityBins) -> float:
    # One weighted row has 1 effective row but for rounding.
    used = bins.effective_rows > 1 + 1e-9
    rate, n = bins.rate[used], bins.effective_rows[used]
    squared = (rate - bins.mean_probability[used]) ** 2 - rate * (1 - rate) / (n - 1)
    return float((bins.labelled[used] * squared).sum() / bins.labelled.sum())


def _noise(bins: ProbabilityBins) -> float:
    return float((bins.labelled * bins.perfect_gap).sum() / bins.labelled.sum())
