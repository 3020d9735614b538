"""What the gate judges: labelled cells of its buckets, all their traffic, and the errors of means over blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.groups import CellGroups
from stream_calib.calibration.metrics import LOG_LOSS_CLIP, log_loss_sums
from stream_calib.refit.row_weights import CellWeights


@dataclass(frozen=True, slots=True)
class GateCells:
    """Labelled cells of the gate's buckets in complete panes; columns (k,)."""

    day: NDArray[np.int64]
    unit_bucket: NDArray[np.uint8]
    labelled: NDArray[np.int64]
    """Counts, as the next: how many rows there are is asked of them, and figures are made by weight."""
    positives: NDArray[np.int64]
    served: NDArray[np.float64]
    """Probability served now."""
    candidate: NDArray[np.float64]
    families: Sequence[CellGroups]
    weights: CellWeights


@dataclass(frozen=True, slots=True)
class GateTraffic:
    """Every score of the gate's buckets in the window, labelled or not; columns (k,) unless said otherwise.

    Counts of the events that came, whatever share of them was kept before the stream: they are those that were served.
    """

    day: NDArray[np.int64]
    unit_bucket: NDArray[np.uint8]
    events: NDArray[np.int64]
    served: NDArray[np.float64]
    """(k, 2) probability served now at the lower and at the upper edge of the cell's bin."""
    candidate: NDArray[np.float64]
    """(k, 2)"""
    families: Sequence[CellGroups]


@dataclass(frozen=True, slots=True)
class GateLosses:
    """Of each cell, summed over its rows by weight; columns (k,)."""

    labelled: NDArray[np.float64]
    positives: NDArray[np.float64]
    served: NDArray[np.float64]
    gain: NDArray[np.float64]
    label_variance: NDArray[np.float64]
    """Variance of the gain if labels are drawn with a probability half-way between the two."""

    @classmethod
    def of(cls, cells: GateCells) -> GateLosses:
        """Both sides clipped at 1e-6."""
        labelled, positives = cells.weights.weighted(cells.labelled, cells.positives)
        served = np.clip(cells.served, LOG_LOSS_CLIP, 1 - LOG_LOSS_CLIP)
        candidate = np.clip(cells.candidate, LOG_LOSS_CLIP, 1 - LOG_LOSS_CLIP)
        middle = (served + candidate) / 2
        gain_positive = np.log(candidate) - np.log(served)
        gain_negative = np.log1p(-candidate) - np.log1p(-served)
        # What a row of the label's weight adds: the negatives' weight, and as far as a label would be positive the
        # other.
        negative, positive = cells.weights.negative, cells.weights.positive
        mean_weight = negative + (positive - negative) * (1 - middle)
        return cls(
            labelled,
            positives,
            log_loss_sums(cells.served, labelled, positives),
            positives * gain_positive + (labelled - positives) * gain_negative,
            labelled * middle * (1 - middle) * (gain_positive - gain_negative) ** 2 * mean_weight,
        )


def block_errors(
    block: NDArray[np.generic],
    group: NDArray[np.intp],
    groups: int,
    total: NDArray[np.float64],
    weight: NDArray[np.float64],
) -> NDArray[np.float64]:
    """(groups,) standard errors of each group's mean with these blocks; nan with fewer than two blocks.

    Of cells (k,): block, group, sum of what is averaged, and weight. The cluster-robust (ratio) estimate
    B / (B - 1) sum_b (t_b - mean w_b)^2 / W^2.
    """
    distinct, place = np.unique(block, return_inverse=True)
    cell = group * len(distinct) + place
    size = groups * len(distinct)
    totals = np.bincount(cell, total, size).reshape(groups, len(distinct))
    weights = np.bincount(cell, weight, size).reshape(groups, len(distinct))
    whole = weights.sum(axis=1)
    blocks = (weights > 0).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        residual = totals - (totals.sum(axis=1) / whole)[:, None] * weights
        errors = np.sqrt(blocks / (blocks - 1) * (residual**2).sum(axis=1)) / whole
    return np.where(blocks > 1, errors, np.nan)


def blocks_seen(block: NDArray[np.generic], group: NDArray[np.intp], groups: int) -> NDArray[np.int64]:
    """(groups,) number of blocks in which each group has rows."""
    distinct, place = np.unique(block, return_inverse=True)
    seen = np.zeros((groups, len(distinct)), dtype=bool)
    seen[group, place] = True
    return np.asarray(seen.sum(axis=1), dtype=np.int64)
