"""Building the PSI reference: bins by quantiles of the fit histogram, and each group's design effect."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from stream_calib.calibration.grid import N_BINS
from stream_calib.drift.psi import ReferenceGroup, psi_of, shares

MIN_WINDOWS = 3
"""Windows with rows that a design effect needs."""
_UPPER = 0.95


def quantile_bins(histogram: NDArray[np.float64], bins: int) -> list[int]:
    """Last grid bin of each PSI bin, ascending, the last one 401.

    `histogram` is (402,) rows by grid bin. Cuts are at the quantiles k / bins, whole grid bins only; equal cuts are one
    (ties merge); a bin of less than half of 1 / bins of the mass joins its lighter neighbour. The outer bins are open.
    """
    total = float(histogram.sum())
    if total <= 0:
        return [N_BINS - 1]
    cumulative = np.cumsum(histogram)
    # The tolerance keeps a cut where rounding of the running sum would move it by one grid bin.
    targets = total * np.arange(1, bins) / bins * (1 - 1e-12)
    cuts = np.unique(np.searchsorted(cumulative, targets)).tolist()
    ends = [c for c in cuts if c < N_BINS - 1] + [N_BINS - 1]
    mass = np.diff(np.concatenate([[0.0], cumulative[ends]])).tolist()
    while len(ends) > 1 and min(mass) < 0.5 * total / bins:
        i = mass.index(min(mass))
        right = i == 0 or (i < len(mass) - 1 and mass[i + 1] < mass[i - 1])
        left = i if right else i - 1
        mass[left : left + 2] = [mass[left] + mass[left + 1]]
        del ends[left]
    return ends


def reference_group(
    attribute: str | None,
    value: str | None,
    histogram: NDArray[np.float64],
    windows: NDArray[np.int64],
    bins: int,
) -> ReferenceGroup:
    """The reference of one group from its fit histogram (402,) and the counts (W, 402) of the past windows.

    The design effect is the upper 95 % bound (mean + Student's t x standard error) of PSI over (B - 1)(1/n + 1/m)
    among past windows with at least as many rows as bins, times W / (W - 1) because the windows are part of the
    reference; at least 1.
    """
    ends = quantile_bins(histogram, bins)
    starts = np.concatenate([[0], np.asarray(ends[:-1], dtype=np.int64) + 1])
    rows = np.add.reduceat(histogram, starts)
    effect: float | None = None
    if len(ends) > 1:
        counts = np.add.reduceat(windows, starts, axis=1).astype(np.float64)
        effect = _design_effect(counts[counts.sum(axis=1) >= len(ends)], rows)
    # Twelve digits: what is in a snapshot must not depend on the last bits of a sum.
    return ReferenceGroup(
        attribute,
        value,
        tuple(ends),
        tuple(float(f"{r:.12g}") for r in rows),
        None if effect is None else float(f"{effect:.12g}"),
    )


def _design_effect(counts: NDArray[np.float64], rows: NDArray[np.float64]) -> float | None:
    windows = len(counts)
    if windows < MIN_WINDOWS:
        return None
    used = np.ones(len(rows), dtype=bool)
    p, q = shares(counts, used), shares(rows, used)
    naive = (len(rows) - 1) * (1 / counts.sum(axis=1) + 1 / rows.sum())
    ratio = psi_of(p, q, used) / naive
    quantile = float(stdtrit(windows - 1, _UPPER))
    upper = float(ratio.mean()) + quantile * float(ratio.std(ddof=1)) / math.sqrt(windows)
    return max(1.0, upper * windows / (windows - 1))
