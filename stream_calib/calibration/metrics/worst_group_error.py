"""Worst group error: the largest run of one-sided error in any group, in percent, comparable with MCGrad's figure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stream_calib.calibration.metrics.evaluated import LOG_LOSS_CLIP
from stream_calib.errors import FitError, LengthMismatchError, NonFiniteInputError, OneClassError, WeightError


def worst_group_error(
    label: ArrayLike,
    probability: ArrayLike,
    groups: Sequence[NDArray[np.integer]],
    weight: ArrayLike | None = None,
    *,
    min_rows: int = 10,
) -> float:
    """Largest scaled error over everything and every group of every family, in percent.

    `label`, `probability`, `weight` have shape (n,); `groups` holds for each family (an attribute or an intersection)
    the group of each row, (n,) integers. A group's error is the range (0 included) of the cumulative sum of (label - p)
    in order of p, over sqrt(sum p (1 - p)) of the group; groups of fewer than `min_rows` rows are left out. Returned is
    the largest of these x sqrt(sum p (1 - p) of all) / n / min(base rate, 1 - base rate) x 100 (the range is that of
    Arrieta-Ibarra et al. 2022, the scaling that of MCGrad, arXiv:2509.19884).

    The cumulative sum is read between different values of p only, so the order of rows with equal p does not matter.
    With weights w every term (label - p) counts w times, every p (1 - p) w^2 times, and n is the sum of w; rows of
    weight 0 are left out. In p (1 - p), p is clipped to [1e-6, 1 - 1e-6]. Raises LengthMismatchError, WeightError,
    NonFiniteInputError, OneClassError, or FitError for labels other than 0 and 1.
    """
    p, y = np.asarray(probability, dtype=np.float64), np.asarray(label)
    w = np.ones(len(p)) if weight is None else np.asarray(weight, dtype=np.float64)
    if any(column.shape != p.shape for column in (y, w, *groups)):
        raise LengthMismatchError(f"probabilities have shape {p.shape}; labels, weights and every family need the same")
    if not (np.isfinite(p).all() and np.isfinite(w).all()):
        raise NonFiniteInputError("probabilities or weights hold NaN or infinity; leave those rows out")
    if not ((y == 0) | (y == 1)).all():
        raise FitError("labels must be 0 or 1; leave rows without a label out of the evaluation")
    if not (w >= 0).all() or not w.any():
        raise WeightError("weights must be 0 or more, not all 0, and there must be rows")
    order = np.flatnonzero(w > 0)
    order = order[np.argsort(p[order], kind="stable")]
    p, y, w = p[order], y[order], w[order]
    base_rate = float((w * y).sum() / w.sum())
    if not 0 < base_rate < 1:
        raise OneClassError("the worst group error needs positives and negatives; only one class is present")
    clipped = np.clip(p, LOG_LOSS_CLIP, 1 - LOG_LOSS_CLIP)
    error, variance = w * (y - p), w * w * clipped * (1 - clipped)
    everything = np.zeros(len(p), dtype=np.intp)
    families = [everything, *(group[order] for group in groups)]
    worst = max(_worst_of_family(p, error, variance, group, min_rows) for group in families)
    return worst * float(np.sqrt(variance.sum()) / w.sum()) / min(base_rate, 1 - base_rate) * 100


def _worst_of_family(
    p: NDArray[np.float64],
    error: NDArray[np.float64],
    variance: NDArray[np.float64],
    group: NDArray[np.integer],
    min_rows: int,
) -> float:
    """Largest range over sqrt(variance) of the family's groups; rows come in order of p. 0 where all are too small."""
    by_group = np.argsort(group, kind="stable")
    p, error, variance, group = p[by_group], error[by_group], variance[by_group], group[by_group]
    new_group = np.concatenate([[True], group[1:] != group[:-1]])
    starts = np.flatnonzero(new_group)
    sizes = np.diff(starts, append=len(p))
    running = np.cumsum(error)
    before = (running[starts] - error[starts]).repeat(sizes)
    last_of_tie = np.concatenate([new_group[1:] | (p[1:] != p[:-1]), [True]])
    # Inside a tie the sum is not defined; 0, which every range includes, takes its place.
    walk = np.where(last_of_tie, running - before, 0.0)
    high = np.maximum(np.maximum.reduceat(walk, starts), 0.0)
    low = np.minimum(np.minimum.reduceat(walk, starts), 0.0)
    ratio = (high - low) / np.sqrt(np.add.reduceat(variance, starts))
    return float(ratio[sizes >= min_rows].max(initial=0.0))
