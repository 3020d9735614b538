"""Worst group error: the largest run of one-sided error in any group, in percent, comparable with MCGrad's figure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stream_calib.calibration.metrics.evaluated import LOG_LOSS_CLIP
from stream_calib.calibration.metrics.evaluated_groups import EvaluatedGroups
from stream_calib.errors import OneClassError

DEFAULT_MIN_ROWS = 10


def worst_group_error(
    label: ArrayLike,
    probability: ArrayLike,
    groups: Sequence[ArrayLike],
    weight: ArrayLike | None = None,
    *,
    min_rows: int = DEFAULT_MIN_ROWS,
) -> float:
    """Largest scaled error over everything and every group of every family, in percent.

    A group's error is the range (0 included) of the cumulative sum of (label - p) in order of p, over
    sqrt(sum p (1 - p)) of the group; groups of fewer than `min_rows` rows (effective rows where weights differ) are
    left out. Returned is the largest of these x sqrt(sum p (1 - p) of all) / n / min(base rate, 1 - base rate) x 100
    (the range is that of Arrieta-Ibarra et al. 2022, the scaling that of MCGrad, arXiv:2509.19884).

    The cumulative sum is read between different values of p only, so the order of rows with equal p does not matter.
    With weights w every term (label - p) counts w times, every p (1 - p) w^2 times, and n is the sum of w. In
    p (1 - p), p is clipped to [1e-6, 1 - 1e-6]. Shapes and errors: `EvaluatedGroups.of_rows`; OneClassError where only
    one class is present.
    """
    return _worst(EvaluatedGroups.of_rows(label, probability, groups, weight), min_rows)


def worst_group_error_of_counts(
    value: ArrayLike,
    labelled: ArrayLike,
    positives: ArrayLike,
    groups: Sequence[ArrayLike],
    *,
    squared: ArrayLike | None = None,
    min_rows: int = DEFAULT_MIN_ROWS,
) -> float:
    """The same from counts (k,) behind each probability (k,); where rows have weights, counts by weight, and the sums
    `squared` (k,) of their squares. Errors: `EvaluatedGroups.of_counts`, OneClassError."""
    return _worst(EvaluatedGroups.of_counts(value, labelled, positives, groups, squared), min_rows)


def _worst(evaluated: EvaluatedGroups, min_rows: int) -> float:
    data, base_rate = evaluated.data, evaluated.data.base_rate
    if not 0 < base_rate < 1:
        raise OneClassError("the worst group error needs positives and negatives; only one class is present")
    order = np.argsort(data.value, kind="stable")
    p, labelled, squared = data.value[order], data.labelled[order], data.squared[order]
    clipped = np.clip(p, LOG_LOSS_CLIP, 1 - LOG_LOSS_CLIP)
    columns = np.stack([data.positives[order] - labelled * p, squared * clipped * (1 - clipped), labelled, squared])
    worst = max(_worst_of_family(p, columns, group[order], min_rows) for _, group in evaluated.numbered())
    return worst * float(np.sqrt(columns[1].sum()) / labelled.sum()) / min(base_rate, 1 - base_rate) * 100


def _worst_of_family(
    p: NDArray[np.float64], columns: NDArray[np.float64], group: NDArray[np.intp], min_rows: int
) -> float:
    """Largest range over sqrt(variance) of the family's groups; entries come in order of p. 0 where all are too small.

    `columns` (4, k): error, variance, weight and squared weight.
    """
    by_group = np.argsort(group, kind="stable")
    by_group = by_group[np.searchsorted(group[by_group], 0) :]
    if not len(by_group):
        return 0.0
    p, group = p[by_group], group[by_group]
    error, variance, labelled, squared = columns[:, by_group]
    new_group = np.concatenate([[True], group[1:] != group[:-1]])
    starts = np.flatnonzero(new_group)
    running = np.cumsum(error)
    before = (running[starts] - error[starts]).repeat(np.diff(starts, append=len(p)))
    last_of_tie = np.concatenate([new_group[1:] | (p[1:] != p[:-1]), [True]])
    # Inside a tie the sum is not defined; 0, which every range includes, takes its place.
    walk = np.where(last_of_tie, running - before, 0.0)
    high = np.maximum(np.maximum.reduceat(walk, starts), 0.0)
    low = np.minimum(np.minimum.reduceat(walk, starts), 0.0)
    ratio = (high - low) / np.sqrt(np.add.reduceat(variance, starts))
    rows = np.add.reduceat(labelled, starts) ** 2 / np.add.reduceat(squared, starts)
    # Equal weights give the number of rows but for rounding.
    return float(ratio[rows >= min_rows * (1 - 1e-9)].max(initial=0.0))
