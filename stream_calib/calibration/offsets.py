"""Joint offsets: one shift in log-odds for each group of every family, and one for everything."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.rounding import round_significant
from stream_calib.errors import FitError

_ROUNDING = 1e-15
"""Gradients below this share of the rows are rounding."""
_STEP_ACCURACY = 0.01
"""A Newton step is solved for until so much of the gradient is left: near the end each still gains two digits."""
_MOST_INNER_STEPS = 2_000


def fit_offsets(
    base_log_odds: NDArray[np.float64],
    labelled: NDArray[np.float64],
    positives: NDArray[np.float64],
    families: Sequence[NDArray[np.intp]],
    sizes: Sequence[int],
    *,
    ridge: float = 20.0,
    tolerance: float = 1e-6,
    max_rounds: int = 200,
) -> list[NDArray[np.float64]]:
    """Offsets (G_f,) of every family f, to 12 significant digits; 0 for groups without rows.

    `base_log_odds`, `labelled`, `positives` have shape (k,), one entry a cell; counts may be decayed by age.
    `families[f]` (k,) is the group of each cell in 0 .. `sizes[f]` - 1, or -1 for cells in no group of the family
    (`__other__`), whose offset there is 0.

    They minimise the log-loss + ridge / 2 x the sum of u^2, which is strictly convex, and together lie within
    `tolerance` (Euclidean) of its minimum: the gradient is at most ridge x `tolerance`, or at most rounding for more
    than about 10^10 rows. Raises FitError where `max_rounds` Newton steps do not get there.

    Each step is taken over all families at once, from zero, solved by conjugate gradients. A step that would move a
    cell by r is shortened to ln(1 + r) / r of it, so each one gains (Bach, "Self-concordant analysis for logistic
    regression", 2010). Going round family by family would reach the same minimum, but not in time: where a family
    divides the groups of another, only the ridge says how the two share, and each round settles about ridge / rows of
    that.
    """
    if not len(base_log_odds) or not families:
        return [np.zeros(size) for size in sizes]
    cells = _CellsByShift(base_log_odds, labelled, positives, families, sizes)
    enough = max(ridge * tolerance, _ROUNDING * float(labelled.sum()))
    offsets = np.zeros(cells.parameters)
    for _ in range(max_rounds):
        residual, curvature = cells.residual_and_curvature(cells.shift(offsets))
        gradient = cells.by_group(residual) - ridge * offsets
        left = _length(gradient)
        if left <= enough:
            return [round_significant(part[1:]) for part in np.split(offsets, cells.first[1:])]
        step = _newton_step(cells, gradient, curvature, ridge, max(_STEP_ACCURACY * left, 0.1 * enough))
        farthest = float(np.abs(cells.shift(step)).max())
        offsets += step * (np.log1p(farthest) / farthest if farthest > 0 else 1.0)
    raise FitError(f"offsets have a gradient of {left:.2g} after {max_rounds} rounds; raise the ridge {ridge:g}")


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


def _newton_step(
    cells: _CellsByShift,
    gradient: NDArray[np.float64],
    curvature: NDArray[np.float64],
    ridge: float,
    accuracy: float,
) -> NDArray[np.float64]:
    """(parameters,) step d with |H d - gradient| <= `accuracy`, by conjugate gradients scaled with H's diagonal.

    Wherever it stops, d gains as much as the quadratic model says: d H d = d gradient.
    """
    scale = 1.0 / (cells.by_group(curvature) + ridge)
    step, left = np.zeros_like(gradient), gradient.copy()
    direction = scale * left
    product = float((left * direction).sum())
    for _ in range(_MOST_INNER_STEPS):
        turned = cells.by_group(curvature * cells.shift(direction)) + ridge * direction
        length = product / float((direction * turned).sum())
        step += length * direction
        left -= length * turned
        if _length(left) <= accuracy:
            break
        scaled = scale * left
        before, product = product, float((left * scaled).sum())
        direction = scaled + product / before * direction
    return step


def _length(vector: NDArray[np.float64]) -> float:
    # Not by a dot product: what that rounds to depends on the number of processors.
    return float(np.sqrt((vector * vector).sum()))


class _CellsByShift:
    """Cells sorted so that those with the same groups, which always move together, are neighbours: m runs of them.

    The offsets of all families are one vector (parameters,): of each family first the entry that stands for cells in no
    group, always 0, then its groups. `first` (F,): where each family begins.
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
        starts = np.searchsorted(run[order], np.arange(run.max() + 1))
        widths = np.array(sizes, dtype=np.intp) + 1
        self.parameters = int(widths.sum())
        self.first = np.cumsum(widths) - widths
        self._members = [group[order[starts]] + 1 for group in families]
        self._starts = starts
        self._lengths = np.diff(starts, append=len(order))
        self._labelled = labelled[order].astype(np.float64)
        self._positives = np.add.reduceat(positives[order].astype(np.float64), starts)
        self._inverse_odds = np.exp(-base_log_odds[order])

    def shift(self, offsets: NDArray[np.float64]) -> NDArray[np.float64]:
        """What the offsets (parameters,) add to each run (m,)."""
        total = np.zeros(len(self._starts))
        for first, member in zip(self.first.tolist(), self._members, strict=True):
            total += offsets[first + member]
        return total

    def by_group(self, of_runs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums of (m,) over the runs of each group (parameters,); 0 for the entries of cells in no group."""
        sums = np.zeros(self.parameters)
        ends = [*self.first[1:].tolist(), self.parameters]
        for first, end, member in zip(self.first.tolist(), ends, self._members, strict=True):
            sums[first:end] = np.bincount(member, of_runs, end - first)
        sums[self.first] = 0.0
        return sums

    def residual_and_curvature(self, shift: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sums of (positives - n p) and of n p (1 - p) over each run (m,), with log-odds moved by its `shift` (m,)."""
        # 1 / (1 + e^-x) with e^-x as a product takes an exponential a run, not one a cell.
        p = 1.0 / (1.0 + self._inverse_odds * np.repeat(np.exp(-shift), self._lengths))
        expected = self._labelled * p
        residual = self._positives - np.add.reduceat(expected, self._starts)
        return residual, np.add.reduceat(expected * (1.0 - p), self._starts)
