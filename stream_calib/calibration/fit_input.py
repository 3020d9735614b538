"""What a fit is given, checked and brought into one form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from scipy.special import expit

from stream_calib.calibration.grid import CENTRE_LOG_ODDS, N_BINS
from stream_calib.errors import FitError, LengthMismatchError, NonFiniteInputError, ScoreRangeError, WeightError

CENTRE_SCORE: NDArray[np.float64] = np.concatenate([[0.0], expit(CENTRE_LOG_ODDS[1:-1]), [1.0]])
"""(402,) scores that stand for the grid bins: those of their centres."""


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Weight of labelled rows and of positives by score. Columns have shape (k,).

    `score` float64, does not decrease; `labelled` float64, > 0: read-only ones, which take no memory, for rows without
    weights. `outcome` is bool for these (a label a row), float64 otherwise (the positives' weight). `rows`,
    `positive_rows`, `negative_rows` do not depend on weights.
    """

    score: NDArray[np.float64]
    labelled: NDArray[np.float64]
    outcome: NDArray[np.float64] | NDArray[np.bool_]
    rows: float
    positive_rows: float
    negative_rows: float

    @property
    def unweighted(self) -> bool:
        """Whether every entry is one row of weight 1."""
        return self.outcome.dtype == np.bool_

    @property
    def positives(self) -> NDArray[np.float64]:
        """The positives' weight (k,) float64; made anew at each call for rows without weights."""
        return self.outcome.astype(np.float64, copy=False)


def checked_scores(scores: ArrayLike) -> NDArray[np.float64]:
    """Scores (n,) float64 from (n,) or (n, 1). Raises NonFiniteInputError, ScoreRangeError, FitError (other shapes)."""
    score = checked_numbers("scores", scores)
    if score.ndim == 2 and score.shape[1] == 1:
        score = score[:, 0]
    if score.ndim != 1:
        raise FitError(f"scores have shape {score.shape}; give one score a row, as (n,) or (n, 1)")
    _check_finite("scores", score)
    if len(score) and (score.min() < 0 or score.max() > 1):
        outside = score[(score < 0) | (score > 1)]
        raise ScoreRangeError(
            f"{len(outside)} scores lie outside [0, 1], the first is {outside[0]}; convert logits or percent first"
        )
    return score


def counts_of_rows(scores: ArrayLike, labels: ArrayLike | None, weights: ArrayLike | None) -> Counts:
    """Counts from rows; rows of weight 0 are left out. Raises as `Calibrator.fit`."""
    if labels is None:
        raise FitError("a calibrator requires y to be passed, but the target y is None; give a label of 0 or 1 a row")
    score, label = checked_scores(scores), np.asarray(labels)
    weight = None if weights is None else checked_numbers("weights", weights)
    if label.shape != score.shape or (weight is not None and weight.shape != score.shape):
        shapes = f"{score.shape}, labels {label.shape}, weights {None if weight is None else weight.shape}"
        raise LengthMismatchError(f"scores {shapes}: there must be one label, and one weight if any, for each score")
    positive = _positive(label)
    if weight is None:
        score, positive = _sorted_rows(score, positive)
        return _counts(score, np.broadcast_to(1.0, score.shape), positive, positive)
    _check_weights(weight)
    if len(weight) and not weight.any():
        raise WeightError("all weights are 0; of a total of zero nothing can be fitted, keep the calibrator you have")
    if not weight.all():
        kept = weight > 0
        score, positive, weight = score[kept], positive[kept], weight[kept]
    order = np.argsort(score)
    score, positive, labelled = score[order], positive[order], weight[order]
    return _counts(score, labelled, labelled * positive, positive)


def _counts(
    score: NDArray[np.float64],
    labelled: NDArray[np.float64],
    outcome: NDArray[np.float64] | NDArray[np.bool_],
    positive: NDArray[np.bool_],
) -> Counts:
    positive_rows = int(np.count_nonzero(positive))
    return Counts(score, labelled, outcome, len(score), positive_rows, len(score) - positive_rows)


def _positive(label: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each label (n,) is 1, of labels that are 0 or 1. Takes one byte a row, whatever the labels' dtype."""
    if label.dtype == np.bool_:
        return np.asarray(label, dtype=np.bool_)
    if label.dtype.kind not in "iuf":
        raise FitError(f"labels have dtype {label.dtype}; numbers are needed, text and None are never guessed at")
    if label.dtype.kind == "f":
        _check_finite("labels", label)
    positive = label == 1
    if np.count_nonzero(positive) + np.count_nonzero(label == 0) != label.size:
        raise FitError("labels must be 0 or 1; leave rows without a label out of the fit")
    return np.asarray(positive, dtype=np.bool_)


def _sorted_rows(
    score: NDArray[np.float64], positive: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Scores in [0, 1] in order, with their labels. Takes 9 bytes a row, of which 9 are what it returns."""
    # Numbers >= 0 are in the order of their bits and leave the sign bit free: with the label in its place one sort of
    # integers does, ten times as fast as finding an order and taking the rows along.
    packed = score.view(np.uint64) << np.uint64(1)
    np.bitwise_or(packed, positive, out=packed)
    packed.sort()
    label = np.empty(len(packed), dtype=np.bool_)
    np.bitwise_and(packed, np.uint64(1), out=label, casting="unsafe")
    packed >>= np.uint64(1)
    return packed.view(np.float64), label


def counts_of_cells(labelled: ArrayLike, positives: ArrayLike) -> Counts:
    """Counts from sums per grid bin, (402,) each; empty bins are left out. Raises as `Calibrator.fit_cells`."""
    n, k = checked_numbers("labelled", labelled), checked_numbers("positives", positives)
    if n.shape != (N_BINS,) or k.shape != (N_BINS,):
        raise LengthMismatchError(f"labelled {n.shape}, positives {k.shape}: give {N_BINS} counts, one a grid bin")
    _check_finite("positives", k)
    _check_weights(n)
    if (k < 0).any() or (k > n).any():
        raise FitError("a grid bin has positives below 0 or above its labelled rows; check how the cells were summed")
    return counts_by_score(CENTRE_SCORE, n, k)


def counts_by_score(
    score: NDArray[np.float64], labelled: NDArray[np.float64], positives: NDArray[np.float64]
) -> Counts:
    """Counts from sums (k,) by score that were checked; scores without rows are left out."""
    used = labelled > 0
    negatives = float((labelled - positives).sum())
    return Counts(
        score[used], labelled[used], positives[used], float(labelled.sum()), float(positives.sum()), negatives
    )


def checked_numbers(what: str, given: ArrayLike) -> NDArray[np.float64]:
    """The given numbers as float64, of whatever shape. Raises FitError for text, None, objects and sparse matrices."""
    if issparse(given):
        raise FitError(f"{what} are a sparse matrix; sparse input is not taken, give an array")
    values = np.asarray(given)
    if values.dtype.kind == "c":
        raise FitError(f"Complex data not supported: {what} have dtype {values.dtype}")
    if values.dtype.kind not in "biuf":
        raise FitError(f"{what} have dtype {values.dtype}; numbers are needed, text and None are never guessed at")
    return values.astype(np.float64, copy=False)


def _check_finite(what: str, values: NDArray[np.float64]) -> None:
    # One pass over the sum costs less than a mask; only a bad (or huge) sum needs the exact look.
    if not np.isfinite(values.sum()) and not np.isfinite(values).all():
        bad = np.count_nonzero(~np.isfinite(values))
        raise NonFiniteInputError(f"{bad} {what} are NaN or infinite; leave those rows out")


def _check_weights(weight: NDArray[np.float64]) -> None:
    _check_finite("weights", weight)
    if (weight < 0).any():
        raise WeightError(f"{np.count_nonzero(weight < 0)} weights are negative; weights are 0 or more")
