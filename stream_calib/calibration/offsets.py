"""Joint offsets: one shift in log-odds for each group of every family, and one for everything."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.rounding import round_significant
from stream_calib.errors import FitError

LARGEST_STEP = 1.0


def fit_offsets(
    base_log_odds: NDArray[np.float64],
    labelled: NDArray[np.float64],
    positives: NDArray[np.float64],
    families: Sequence[NDArray[np.intp]],
    sizes: Sequence[int],
    *,
    ridge: float = 20.0,
    tolerance: float = 1e-6,
    max_rounds: int = 1_000,
) -> list[NDArray[np.float64]]:
    """Offsets (G_f,) of every family f, to 12 significant digits; 0 for groups without rows.

    `base_log_odds`, `labelled`, `positives` have shape (k,), one entry a cell; counts may be decayed by age.
    `families[f]` (k,) is the group of each cell in 0 .. `sizes[f]` - 1, or -1 for cells in no group of the family
    (`__other__`), whose offset there is 0.

    Cyclic Newton steps, a whole family (a set of disjoint groups) at a time, from zero, each within +-1:
    u += (sum (positives - n p) - ridge u) / (sum n p (1 - p) + ridge), until no step of a round is larger than
    `tolerance`. This minimises the log-loss + ridge / 2 x the sum of u^2, which is strictly convex; the distance left
    to its minimum is about ten times the tolerance where groups overlap as carrier and carrier x origin do. Raises
    FitError where `max_rounds` rounds do not reach the tolerance.
    """
    if not len(base_log_odds):
        return [np.zeros(size) for size in sizes]
    cells = _CellsByShift(base_log_odds, labelled, positives, families, sizes)
    # Entry 0 stands for the cells in no group; its offset is never moved.
    offsets: list[NDArray[np.float64]] = [np.zeros(size + 1) for size in sizes]
    shift = np.zeros(len(cells.starts))
    for _ in range(max_rounds):
        largest = 0.0
        for member, offset in zip(cells.members, offsets, strict=True):
            residual, curvature = cells.residual_and_curvature(shift)
            slope = np.bincount(member, residual, len(offset)) - ridge * offset
            step = np.clip(slope / (np.bincount(member, curvature, len(offset)) + ridge), -LARGEST_STEP, LARGEST_STEP)
            step[0] = 0.0
            offset += step
            shift += step[member]
            largest = max(largest, float(np.abs(step).max()))
        if largest <= tolerance:
            return [round_significant(offset[1:]) for offset in offsets]
    raise FitError(f"offsets still move by {largest:.2g} after {max_rounds} rounds; raise the ridge {ridge:g}")


def fit_level(
    log_odds: NDArray[np.float64],
    labelled: NDArray[np.float64],
    positives: NDArray[np.float64],
    *,
    prior: float = 300.0,
) -> float:
    """One common offset of the log-odds (k,), shrunk to 0: the offsets' fit with a single group and ridge `prior`.

    `log_odds` includes the offsets of the structure; `labelled` and `positives` (k,) carry the level's own decay.
    """
    everything = np.zeros(len(log_odds), dtype=np.intp)
    (level,) = fit_offsets(log_odds, labelled, positives, [everything], [1], ridge=prior, tolerance=1e-10)
    return float(level[0])


class _CellsByShift:
    """Cells sorted so that those with the same groups, which always move together, are neighbours.

    `starts` (m,): where each of the m runs begins; `members[f]` (m,): 1 + the run's group in family f.
    """

    def __init__(
        self,
        base_log_odds: NDArray[np.float64],
        labelled: NDArray[np.float64],
        positives: NDArray[np.float64],
        families: Sequence[NDArray[np.intp]],
        sizes: Sequence[int],
    ) -> None:
        run = np.zeros(len(base_log_odds), dtype=np.int64)
        for group, size in zip(families, sizes, strict=True):
            # Numbered anew for each family, so that many large families cannot overflow the product of their sizes.
            run = np.unique(run * (size + 1) + group + 1, return_inverse=True)[1]
        order = np.argsort(run, kind="stable")
        self.starts = np.searchsorted(run[order], np.arange(run.max() + 1))
        self.members = [group[order[self.starts]] + 1 for group in families]
        self._lengths = np.diff(self.starts, append=len(order))
        self._labelled = labelled[order].astype(np.float64)
        self._positives = np.add.reduceat(positives[order].astype(np.float64), self.starts)
        self._inverse_odds = np.exp(-base_log_odds[order])

    def residual_and_curvature(self, shift: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sums of (positives - n p) and of n p (1 - p) over each run (m,), with log-odds moved by its `shift` (m,)."""
        # 1 / (1 + e^-x) with e^-x as a product takes an exponential a run, not one a cell.
        p = 1.0 / (1.0 + self._inverse_odds * np.repeat(np.exp(-shift), self._lengths))
        expected = self._labelled * p
        residual = self._positives - np.add.reduceat(expected, self.starts)
        return residual, np.add.reduceat(expected * (1.0 - p), self.starts)
