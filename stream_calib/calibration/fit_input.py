"""What a fit is given, checked and brought into one form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from stream_calib.calibration.grid import CENTRE_LOG_ODDS, N_BINS
from stream_calib.calibration.input_checks import (
    check_finite,
    check_weights,
    checked_numbers,
    checked_outcomes,
    checked_scores,
)
from stream_calib.errors import FitError, LengthMismatchError

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


def counts_of_rows(scores: ArrayLike, labels: ArrayLike | None, weights: ArrayLike | None) -> Counts:
    """Counts from rows; rows of weight 0 are left out. Raises as `Calibrator.fit`."""
    if labels is None:
        raise FitError("a calibrator requires y to be passed, but the target y is None; give a label of 0 or 1 a row")
    score = checked_scores(scores)
    positive, weight = checked_outcomes(len(score), labels, weights)
    if weight is None:
        score, positive = _sorted_rows(score, positive)
        return _counts(score, np.broadcast_to(1.0, score.shape), positive, positive)
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
    check_finite("positives", k)
    check_weights(n)
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
