"""Folds for cross-validation: every row in one of them, from rows and from cells."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.fit_input import Counts, counts_by_score
from stream_calib.errors import FitError, TooFewRowsError

Fold = tuple[Counts, Counts]
"""What is fitted to, and what is held out."""

_MOST = 2.0**53
"""Above which float64 does not hold every whole number."""


def folds_of_rows(counts: Counts, n_folds: int, rng: np.random.Generator) -> Iterator[Fold]:
    """Folds of counts with an entry a row: shuffled, each class dealt out evenly.

    The entries are in order of score and label, so the folds of unweighted rows do not depend on the order of the rows.
    """
    order = rng.permutation(len(counts.score))
    by_class = np.argsort(counts.outcome[order] > 0, kind="stable")
    fold = np.empty(len(order), dtype=np.int64)
    fold[order[by_class]] = np.arange(len(order)) % n_folds
    for number in range(n_folds):
        yield _chosen(counts, fold != number), _chosen(counts, fold == number)


def folds_of_counts(
    score: NDArray[np.float64], labelled: NDArray[np.float64], positives: NDArray[np.float64]
) -> Iterator[Fold]:
    """Folds of sums (folds, k) by score (k,). Raises TooFewRowsError for a fold without rows."""
    for number in range(len(labelled)):
        if not labelled[number].any():
            raise TooFewRowsError(f"fold {number} has no labelled rows; give fewer folds")
        rest = [np.delete(of, number, axis=0).sum(axis=0) for of in (labelled, positives)]
        yield counts_by_score(score, *rest), counts_by_score(score, labelled[number], positives[number])


def thinned(counts: Counts, n_folds: int, rng: np.random.Generator) -> Iterator[Fold]:
    """Folds of whole counts by score: each row goes to one of them at random, by multinomial thinning.

    Raises FitError for counts that are not whole, as decayed ones: how many rows are behind them cannot be told.
    """
    n, k = counts.labelled, counts.positives
    if not ((n == np.floor(n)) & (k == np.floor(k))).all():
        raise FitError("only whole counts can be split at random; give decayed ones as (folds, 402), by unit bucket")
    if (n > _MOST).any():
        raise FitError(f"a count of {n.max():g} is no exact number any more; give counts by unit bucket, (folds, 402)")
    even = np.full(n_folds, 1 / n_folds)
    positives, negatives = (rng.multinomial(of.astype(np.int64), even).T.astype(np.float64) for of in (k, n - k))
    return folds_of_counts(counts.score, positives + negatives, positives)


def _chosen(counts: Counts, rows: NDArray[np.bool_]) -> Counts:
    outcome = counts.outcome[rows]
    labelled = np.broadcast_to(1.0, outcome.shape) if counts.unweighted else counts.labelled[rows]
    positive_rows = int(np.count_nonzero(outcome))
    return Counts(counts.score[rows], labelled, outcome, len(outcome), positive_rows, len(outcome) - positive_rows)
