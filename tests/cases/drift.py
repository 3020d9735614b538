"""PSI of one group from counts by grid bin."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.grid import N_BINS, locate
from stream_calib.drift.psi import PsiLook, PsiReference, ReferenceGroup, look
from stream_calib.drift.psi_reference import quantile_bins

Counts = NDArray[np.float64]
"""(402,) rows by grid bin."""


def grid_counts(bins: Iterable[tuple[int, int]]) -> Counts:
    """Pairs of grid bin and rows."""
    counts = np.zeros(N_BINS)
    for grid_bin, rows in bins:
        counts[grid_bin] = rows
    return counts


def counts_of(scores: NDArray[np.float64]) -> Counts:
    return np.bincount(locate(scores)[0], minlength=N_BINS).astype(np.float64)


def reference_of(fit: Counts, bins: int = 10) -> PsiReference:
    """As a refit freezes it, with a design effect of 1."""
    ends = quantile_bins(fit, bins)
    starts = np.concatenate([[0], np.asarray(ends[:-1], dtype=np.int64) + 1])
    rows = tuple(np.add.reduceat(fit, starts).tolist())
    return PsiReference([ReferenceGroup(None, None, tuple(ends), rows, 1.0)], 1.0)


def look_at(reference: PsiReference, current: Counts, tail: float = 1e-4, threshold: float = 0.1) -> PsiLook:
    counts = np.zeros(reference.rows.shape, dtype=np.int64)
    np.add.at(counts[0], reference.bin_of[0], current.astype(np.int64))
    return look(reference, counts, threshold, tail)
