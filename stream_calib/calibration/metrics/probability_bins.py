"""Bins of predicted probability that never split equal probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.metrics.evaluated import Evaluated


@dataclass(frozen=True, slots=True, eq=False)
class ProbabilityBins:
    """Non-empty bins in order of probability. All columns have shape (b,) and dtype float64.

    `labelled`, `positives`: weight; `effective_rows`: (sum of weights)^2 / sum of squared weights, the number of rows
    where weights are equal; `mean_probability`, `rate`: weighted means; `mean_variance`: weighted mean of p (1 - p).
    """

    labelled: NDArray[np.float64]
    positives: NDArray[np.float64]
    effective_rows: NDArray[np.float64]
    mean_probability: NDArray[np.float64]
    mean_variance: NDArray[np.float64]

    @property
    def rate(self) -> NDArray[np.float64]:
        return self.positives / self.labelled


def equal_mass_bins(data: Evaluated, n_bins: int) -> ProbabilityBins:
    """At most `n_bins` bins of about equal weight; a tie belongs where the middle of its weight falls."""
    value, tie = np.unique(data.value, return_inverse=True)
    weight = np.bincount(tie, data.labelled, len(value))
    middle = np.cumsum(weight) - weight / 2
    # The last middle may round up to the total, where a light tie follows heavy ones.
    bin_of = np.minimum(np.floor(middle * (n_bins / weight.sum())), n_bins - 1).astype(np.intp)
    return _sums(data, bin_of[tie])


def equal_width_bins(data: Evaluated, n_bins: int) -> ProbabilityBins:
    """At most `n_bins` bins of width 1 / n_bins in probability; the last one is closed."""
    return _sums(data, np.minimum((data.value * n_bins).astype(np.intp), n_bins - 1))


def _sums(data: Evaluated, bin_of: NDArray[np.intp]) -> ProbabilityBins:
    labelled = np.bincount(bin_of, data.labelled)
    used = labelled > 0

    def total(column: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.bincount(bin_of, column)[used], dtype=np.float64)

    n = total(data.labelled)
    return ProbabilityBins(
        labelled=n,
        positives=total(data.positives),
        effective_rows=n * n / total(data.squared),
        mean_probability=total(data.labelled * data.value) / n,
        mean_variance=total(data.labelled * data.value * (1 - data.value)) / n,
    )
