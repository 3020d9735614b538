"""What a fit is given, checked and brought into one form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from stream_calib.calibration.grid import CENTRE_LOG_ODDS, N_BINS
from stream_calib.errors import FitError, LengthMismatchError, NonFiniteInputError, ScoreRangeError, WeightError

_CENTRE_SCORE = np.concatenate([[0.0], expit(CENTRE_LOG_ODDS[1:-1]), [1.0]])


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Weight of labelled rows and of positives by score. Columns have shape (k,) and dtype float64.

    `score` does not decrease; `labelled` > 0. `rows`, `positive_rows`, `negative_rows` do not depend on weights.
    """

    score: NDArray[np.float64]
    labelled: NDArray[np.float64]
    positives: NDArray[np.float64]
    rows: float
    positive_rows: float
    negative_rows: float


def checked_scores(scores: ArrayLike) -> NDArray[np.float64]:
    """Scores (n,) float64 from (n,) or (n, 1). Raises NonFiniteInputError, ScoreRangeError, FitError (other shapes)."""
    score = _numbers("scores", scores)
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


def counts_of_rows(scores: ArrayLike, labels: ArrayLike, weights: ArrayLike | None) -> Counts:
    """Counts from rows; rows of weight 0 are left out. Raises as `GIRB.fit`."""
    score, label = checked_scores(scores), _numbers("labels", labels)
    weight = None if weights is None else _numbers("weights", weights)
    if label.shape != score.shape or (weight is not None and weight.shape != score.shape):
        shapes = f"{score.shape}, labels {label.shape}, weights {None if weight is None else weight.shape}"
        raise LengthMismatchError(f"scores {shapes}: there must be one label, and one weight if any, for each score")
    _check_finite("labels", label)
    positive = label == 1
    if not (positive | (label == 0)).all():
        raise FitError("labels must be 0 or 1; leave rows without a label out of the fit")
    if weight is not None:
        _check_weights(weight)
        if len(weight) and not weight.any():
            raise WeightError("all weights are 0; there is nothing to fit, keep the calibrator that you have")
        kept = weight > 0
        if not kept.all():
            score, positive, weight = score[kept], positive[kept], weight[kept]
    positive_rows = int(np.count_nonzero(positive))
    rows = len(score)
    if weight is None:
        score, positive = _sorted_rows(score, positive)
        labelled = np.ones(rows)
    else:
        order = np.argsort(score)
        score, positive, labelled = score[order], positive[order], weight[order]
    return Counts(
        score=score,
        labelled=labelled,
        positives=labelled * positive,
        rows=rows,
        positive_rows=positive_rows,
        negative_rows=rows - positive_rows,
    )


def _sorted_rows(
    score: NDArray[np.float64], positive: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Scores in [0, 1] in order, with their labels."""
    # Numbers >= 0 are in the order of their bits and leave the sign bit free: with the label in its place one sort of
    # integers does, ten times as fast as finding an order and taking the rows along.
    packed = (score.view(np.uint64) << np.uint64(1)) | positive
    packed.sort()
    return (packed >> np.uint64(1)).view(np.float64), (packed & np.uint64(1)).astype(np.bool_)


def counts_of_cells(labelled: ArrayLike, positives: ArrayLike) -> Counts:
    """Counts from sums per grid bin, (402,) each; empty bins are left out. Raises as `GIRB.fit_cells`."""
    n, k = _numbers("labelled", labelled), _numbers("positives", positives)
    if n.shape != (N_BINS,) or k.shape != (N_BINS,):
        raise LengthMismatchError(f"labelled {n.shape}, positives {k.shape}: give {N_BINS} counts, one a grid bin")
    _check_finite("positives", k)
    _check_weights(n)
    if (k < 0).any() or (k > n).any():
        raise FitError("a grid bin has positives below 0 or above its labelled rows; check how the cells were summed")
    used = n > 0
    total, total_positives = float(n.sum()), float(k.sum())
    return Counts(_CENTRE_SCORE[used], n[used], k[used], total, total_positives, float((n - k).sum()))


def _numbers(what: str, given: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(given)
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
