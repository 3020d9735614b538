"""Checks of scores, labels and weights, the same for every fit and every metric. Nothing is guessed at."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stream_calib.errors import FitError, LengthMismatchError, NonFiniteInputError, ScoreRangeError, WeightError


def checked_scores(scores: ArrayLike) -> NDArray[np.float64]:
    """Scores (n,) float64 from (n,) or (n, 1). Raises NonFiniteInputError, ScoreRangeError, FitError (other shapes)."""
    score = checked_numbers("scores", scores)
    if score.ndim == 2 and score.shape[1] == 1:
        score = score[:, 0]
    if score.ndim != 1:
        raise FitError(f"scores have shape {score.shape}; give one score a row, as (n,) or (n, 1)")
    check_finite("scores", score)
    if len(score) and (score.min() < 0 or score.max() > 1):
        outside = score[(score < 0) | (score > 1)]
        raise ScoreRangeError(
            f"{len(outside)} scores lie outside [0, 1], the first is {outside[0]}; convert logits or percent first"
        )
    return score


def checked_outcomes(
    rows: int, labels: ArrayLike, weights: ArrayLike | None
) -> tuple[NDArray[np.bool_], NDArray[np.float64] | None]:
    """Whether each of the rows' labels (n,) is 1, and their weights (n,), None where none are given.

    Raises LengthMismatchError, NonFiniteInputError, WeightError (negative, or all 0); FitError for labels other than 0
    and 1, and for text or None.
    """
    label = np.asarray(labels)
    weight = None if weights is None else checked_numbers("weights", weights)
    if label.shape != (rows,) or (weight is not None and weight.shape != (rows,)):
        shapes = f"labels {label.shape}, weights {None if weight is None else weight.shape}"
        raise LengthMismatchError(f"{rows} rows, {shapes}: give one label, and one weight if any, for each row")
    positive = _positive(label)
    if weight is not None:
        check_weights(weight)
        if len(weight) and not weight.any():
            raise WeightError("all weights are 0; from a total of zero nothing follows, give some rows a weight")
    return positive, weight


def checked_numbers(what: str, given: ArrayLike) -> NDArray[np.float64]:
    """The given numbers as float64, of whatever shape. Raises FitError for text, None, objects and sparse matrices."""
    if hasattr(given, "toarray"):  # as all of scipy.sparse, which is not imported for this alone
        raise FitError(f"{what} are a sparse matrix; sparse input is not taken, give an array")
    values = np.asarray(given)
    if values.dtype.kind == "c":
        raise FitError(f"Complex data not supported: {what} have dtype {values.dtype}")
    if values.dtype.kind not in "biuf":
        raise FitError(f"{what} have dtype {values.dtype}; numbers are needed, text and None are never guessed at")
    return values.astype(np.float64, copy=False)


def check_finite(what: str, values: NDArray[np.float64]) -> None:
    """Raises NonFiniteInputError."""
    # One pass over the sum costs less than a mask; only a bad (or huge) sum needs the exact look.
    if not np.isfinite(values.sum()) and not np.isfinite(values).all():
        bad = np.count_nonzero(~np.isfinite(values))
        raise NonFiniteInputError(f"{bad} {what} are NaN or infinite; leave those rows out")


def check_weights(weight: NDArray[np.float64]) -> None:
    """Raises NonFiniteInputError, WeightError."""
    check_finite("weights", weight)
    if (weight < 0).any():
        raise WeightError(f"{np.count_nonzero(weight < 0)} weights are negative; weights are 0 or more")


def _positive(label: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each label (n,) is 1, of labels that are 0 or 1. Takes one byte a row, whatever the labels' dtype."""
    if label.dtype == np.bool_:
        return np.asarray(label, dtype=np.bool_)
    if label.dtype.kind not in "iuf":
        raise FitError(f"labels have dtype {label.dtype}; numbers are needed, text and None are never guessed at")
    if label.dtype.kind == "f":
        check_finite("labels", label)
    positive = label == 1
    if np.count_nonzero(positive) + np.count_nonzero(label == 0) != label.size:
        raise FitError("labels must be 0 or 1; leave rows without a label out")
    return np.asarray(positive, dtype=np.bool_)
