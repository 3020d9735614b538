"""Brier score and its decomposition."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike

from stream_calib.calibration.metrics.evaluated import Evaluated
from stream_calib.calibration.metrics.probability_bins import DEFAULT_BINS, probability_bins


@dataclass(frozen=True, slots=True)
class BrierDecomposition:
    """brier = reliability - resolution + uncertainty + within_bin (Murphy 1973; Stephenson et al. 2008).

    `reliability`: mean squared distance of mean probability and rate of the bins; `resolution`: variance of the rates;
    `uncertainty`: base rate x (1 - base rate); `within_bin`: what the bins hide (variance of the probabilities
    inside bins, less twice their covariance with the outcome), 0 where every bin holds a single probability.
    """

    reliability: float
    resolution: float
    uncertainty: float
    within_bin: float


def brier(label: ArrayLike, probability: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Mean squared distance of probability and outcome. Shapes and errors: `Evaluated.of_rows`."""
    return _mean(Evaluated.of_rows(label, probability, weight))


def brier_of_counts(value: ArrayLike, labelled: ArrayLike, positives: ArrayLike) -> float:
    """The same from counts (k,) behind each probability (k,). Errors: `Evaluated.of_counts`."""
    return _mean(Evaluated.of_counts(value, labelled, positives))


def brier_decomposition(
    label: ArrayLike, probability: ArrayLike, weight: ArrayLike | None = None, *, n_bins: int = DEFAULT_BINS
) -> BrierDecomposition:
    """Parts of the Brier score over bins of equal mass. Shapes and errors: `Evaluated.of_rows`.

    ConfigurationError for `n_bins` beyond 1 .. 10,000.
    """
    return _parts(Evaluated.of_rows(label, probability, weight), n_bins)


def brier_decomposition_of_counts(
    value: ArrayLike, labelled: ArrayLike, positives: ArrayLike, *, n_bins: int = DEFAULT_BINS
) -> BrierDecomposition:
    """The same from counts (k,) behind each probability (k,). Errors: `Evaluated.of_counts`."""
    return _parts(Evaluated.of_counts(value, labelled, positives), n_bins)


def _parts(data: Evaluated, n_bins: int) -> BrierDecomposition:
    bins = probability_bins(data, n_bins, "mass")
    share, rate = bins.labelled / data.total, bins.rate
    reliability = float((share * (bins.mean_probability - rate) ** 2).sum())
    resolution = float((share * (rate - data.base_rate) ** 2).sum())
    uncertainty = data.base_rate * (1 - data.base_rate)
    return BrierDecomposition(
        reliability, resolution, uncertainty, within_bin=_mean(data) - (reliability - resolution + uncertainty)
    )


def _mean(data: Evaluated) -> float:
    negatives = data.labelled - data.positives
    return float((data.positives * (1 - data.value) ** 2 + negatives * data.value**2).sum()) / data.total
