"""Maximum calibration error."""

from __future__ import annotations

from numpy.typing import ArrayLike

from stream_calib.calibration.metrics.evaluated import Evaluated
from stream_calib.calibration.metrics.probability_bins import DEFAULT_BINS, Bins, probability_bins


def maximum_calibration_error(
    label: ArrayLike,
    probability: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    n_bins: int = DEFAULT_BINS,
    bins: Bins = "mass",
) -> float:
    """Largest |rate - mean probability| of any non-empty bin, in probability (Naeini et al. 2015, section 4).

    Bins of equal width may hold single rows, whose gap is mostly noise; bins of equal mass do not. Shapes and errors:
    as `ece`.
    """
    return float(probability_bins(Evaluated.of_rows(label, probability, weight), n_bins, bins).gap.max())


def maximum_calibration_error_of_counts(
    value: ArrayLike, labelled: ArrayLike, positives: ArrayLike, *, n_bins: int = DEFAULT_BINS, bins: Bins = "mass"
) -> float:
    """The same from counts (k,) behind each probability (k,). Errors: `Evaluated.of_counts`."""
    return float(probability_bins(Evaluated.of_counts(value, labelled, positives), n_bins, bins).gap.max())
