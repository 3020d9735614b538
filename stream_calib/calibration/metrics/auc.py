"""Area under the ROC curve."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from stream_calib.calibration.metrics.evaluated import Evaluated
from stream_calib.errors import OneClassError


def auc(label: ArrayLike, probability: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Share of (positive, negative) pairs in which the positive has the higher probability; ties count half.

    Shapes and errors: `Evaluated.of_rows`; OneClassError where only one class is present.
    """
    return _area(Evaluated.of_rows(label, probability, weight))


def auc_of_counts(value: ArrayLike, labelled: ArrayLike, positives: ArrayLike) -> float:
    """The same from counts (k,) behind each probability (k,); rows of one entry are tied. Errors: as `auc`."""
    return _area(Evaluated.of_counts(value, labelled, positives))


def _area(data: Evaluated) -> float:
    value, tie = np.unique(data.value, return_inverse=True)
    positives = np.bincount(tie, data.positives, len(value))
    negatives = np.bincount(tie, data.labelled - data.positives, len(value))
    pairs = positives.sum() * negatives.sum()
    if not pairs > 0:
        raise OneClassError("the AUC needs positives and negatives; only one class is present")
    below = np.cumsum(negatives) - negatives / 2
    return float((positives * below).sum() / pairs)
