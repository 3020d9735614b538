"""Log-loss."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stream_calib.calibration.metrics.evaluated import LOG_LOSS_CLIP, Evaluated


def log_loss(label: ArrayLike, probability: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Mean of -log of the probability given to the outcome, in nats; probabilities clipped to [1e-6, 1 - 1e-6].

    Shapes and errors: `Evaluated.of_rows`.
    """
    return _mean(Evaluated.of_rows(label, probability, weight))


def log_loss_of_counts(value: ArrayLike, labelled: ArrayLike, positives: ArrayLike) -> float:
    """The same from counts (k,) behind each probability (k,). Errors: `Evaluated.of_counts`."""
    return _mean(Evaluated.of_counts(value, labelled, positives))


def log_loss_sums(
    value: NDArray[np.float64], labelled: NDArray[np.float64], positives: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Summed log-loss (k,) of each entry, for paired comparisons of two maps on the same cells; nothing is checked."""
    p = np.clip(value, LOG_LOSS_CLIP, 1 - LOG_LOSS_CLIP)
    return -(positives * np.log(p) + (labelled - positives) * np.log1p(-p))


def _mean(data: Evaluated) -> float:
    return float(log_loss_sums(data.value, data.labelled, data.positives).sum()) / data.total
