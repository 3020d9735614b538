"""Confidence band of the calibration curve that assumes nothing but that the curve increases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stream_calib.calibration.metrics.binomial_bounds import clopper_pearson
from stream_calib.calibration.metrics.evaluated import Evaluated
from stream_calib.calibration.metrics.parameters import checked_confidence, checked_overdispersion
from stream_calib.calibration.metrics.probability_bins import probability_bins

_BINS = 50


@dataclass(frozen=True, slots=True, eq=False)
class IsotonicBand:
    """Steps of the band, one of at most 50 bins of equal mass each; columns (b,) float64.

    `lower[i]` bounds the curve from `largest[i]` (the bin's largest probability) on, `upper[i]` up to `smallest[i]`.
    Both increase. Where lower passes upper the curve does not increase, at this confidence.
    """

    smallest: NDArray[np.float64]
    largest: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]

    def at(self, probability: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower and upper bounds (n,) of the curve at probabilities (n,)."""
        p = np.asarray(probability, dtype=np.float64)
        lower = np.append(0.0, self.lower)[np.searchsorted(self.largest, p, side="right")]
        upper = np.append(self.upper, 1.0)[np.searchsorted(self.smallest, p, side="left")]
        return lower, upper


def isotonic_band(data: Evaluated, confidence: float, overdispersion: float) -> IsotonicBand:
    """The band of Dimitriadis, Duembgen, Henzi, Puke and Ziegel 2023 (Biometrika 110, p. 663, theorem 1), on bins.

    Where the curve increases it lies, at x, above the mean true probability of every range of probabilities <= x and
    below that of every range >= x. Clopper-Pearson bounds of all ranges of neighbouring bins hold together with
    probability `confidence` (Bonferroni), so the largest lower and the smallest upper one hold for all x at once, at
    every number of rows. n: effective rows over `overdispersion`, as in `binomial_bounds`.
    """
    bins = probability_bins(data, _BINS, "mass")
    b = len(bins.labelled)
    first, last = np.triu_indices(b)

    def over_ranges(column: NDArray[np.float64]) -> NDArray[np.float64]:
        # Not as differences of one running sum: a light bin after a heavy one would vanish in its rounding.
        return np.concatenate([np.cumsum(column[begin:]) for begin in range(b)])

    labelled, squared = over_ranges(bins.labelled), over_ranges(bins.labelled**2 / bins.effective_rows)
    rate = np.clip(over_ranges(bins.positives) / labelled, 0.0, 1.0)
    n = labelled * labelled / squared / checked_overdispersion(overdispersion)
    tail = (1 - checked_confidence(confidence)) / (2 * len(first))
    below, above = clopper_pearson(n * rate, n, tail)
    lower, upper = np.zeros(b), np.ones(b)
    np.maximum.at(lower, last, below)
    np.minimum.at(upper, first, above)
    return IsotonicBand(
        smallest=bins.smallest,
        largest=bins.largest,
        lower=np.maximum.accumulate(lower),
        upper=np.minimum.accumulate(upper[::-1])[::-1],
    )
