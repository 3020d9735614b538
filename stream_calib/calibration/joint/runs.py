"""Cells in runs: those whose groups are the same in every family, so that every shift moves them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One kind of parameter, an offset or a slope, for the groups of one family.

    `member` (m,) intp: for each run 1 + its group, 0 where it is in none. `size`: number of groups.
    """

    member: NDArray[np.intp]
    size: int
    slope: bool


class Runs:
    """m runs of cells and the parameters that move them.

    A cell's log-odds are moved by the offsets of its groups and by their slopes x the cell's `distance` from the slope
    centre. Cells (k,), neighbours within a run and there in order of distance: `log_odds` before any shift, `distance`,
    `labelled`, `positives`; `starts` (m,): each run's first cell.

    The parameters of all blocks are one vector (parameters,): of each block first an entry for runs in none of its
    groups, always 0, then its groups. `first` (blocks,): where each block begins.
    """

    def __init__(
        self,
        log_odds: NDArray[np.float64],
        distance: NDArray[np.float64],
        labelled: NDArray[np.float64],
        positives: NDArray[np.float64],
        starts: NDArray[np.intp],
        blocks: Sequence[Block],
    ) -> None:
        widths = np.array([block.size + 1 for block in blocks], dtype=np.intp)
        ends = np.cumsum(widths)
        self.blocks = tuple(blocks)
        self.first = ends - widths
        self.parameters = int(widths.sum())
        self._spans = list(zip(self.first.tolist(), ends.tolist(), strict=True))
        self._design = self._designed(len(starts))
        self._transposed = csr_array(self._design.T)
        self._starts = starts
        self._lengths = np.diff(starts, append=len(log_odds))
        self._log_odds = log_odds
        self._labelled = labelled
        self._distance = distance if any(block.slope for block in blocks) else None
        self._nearest, self._farthest = distance[starts], distance[starts + self._lengths - 1]
        self.rows = np.add.reduceat(labelled, starts)
        self.rows_apart = np.add.reduceat(labelled * distance, starts)
        self._positives = np.add.reduceat(positives, starts)
        self._positives_apart = np.add.reduceat(positives * distance, starts)

    def split(self, parameters: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """The parameters of each block's groups (G,)."""
        return [parameters[first + 1 : end] for first, end in self._spans]

    def join(self, parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """The vector (parameters,) of each block's groups' numbers (G,)."""
        return np.concatenate([np.empty(0), *(np.concatenate([np.zeros(1), part]) for part in parts)])

    def each(self, values: Sequence[float]) -> NDArray[np.float64]:
        """(parameters,) with one value for all parameters of a block, from one for each block."""
        return np.repeat(np.array(values, dtype=np.float64), [block.size + 1 for block in self.blocks])

    def shift(self, parameters: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sums (m,) of the offsets, and of the slopes, that each run has."""
        offset, slope = (self._design @ parameters).reshape(2, -1)
        return offset, slope

    def by_group(self, of_offsets: NDArray[np.float64], of_slopes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums over the runs of each group (parameters,): of (m,) `of_offsets` for offsets, `of_slopes` for slopes."""
        sums: NDArray[np.float64] = self._transposed @ np.concatenate([of_offsets, of_slopes])
        return sums

    def farthest(self, parameters: NDArray[np.float64]) -> float:
        """The most that the parameters move the log-odds of any cell."""
        offset, slope = self.shift(parameters)
        # Linear in the distance, so the most is at an end of the run.
        ends = (offset + slope * self._nearest, offset + slope * self._farthest)
        return float(max(np.abs(end).max(initial=0.0) for end in ends))

    def probability(self, parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        """Fitted probabilities (k,) of the cells."""
        offset, slope = self.shift(parameters)
        moved = self._log_odds + np.repeat(offset, self._lengths)
        if self._distance is not None:
            moved += np.repeat(slope, self._lengths) * self._distance
        np.negative(moved, out=moved)
        with np.errstate(over="ignore"):
            np.exp(moved, out=moved)
        moved += 1.0
        return np.reciprocal(moved, out=moved)

    def expected(self, parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        """Positives (m,) that the fit expects in each run."""
        return np.add.reduceat(self._labelled * self.probability(parameters), self._starts)

    def residuals_and_moments(self, parameters: NDArray[np.float64]) -> tuple[NDArray[np.float64], Moments]:
        """Gradient (parameters,) of the log-likelihood, and the curvature at the parameters."""
        p = self.probability(parameters)
        expected = self._labelled * p
        residual = self._positives - np.add.reduceat(expected, self._starts)
        residual_apart = residual
        if self._distance is not None:
            residual_apart = self._positives_apart - np.add.reduceat(expected * self._distance, self._starts)
        np.subtract(1.0, p, out=p)
        expected *= p
        none = np.add.reduceat(expected, self._starts)
        one = two = none
        if self._distance is not None:
            expected *= self._distance
            one = np.add.reduceat(expected, self._starts)
            expected *= self._distance
            two = np.add.reduceat(expected, self._starts)
        return self.by_group(residual, residual_apart), Moments(none, one, two)

    def _designed(self, n_runs: int) -> csr_array:
        """(2 m, parameters): 1 where a run has an offset, and m rows further where it has a slope."""
        rows, columns = [np.empty(0, np.intp)], [np.empty(0, np.intp)]
        for block, first in zip(self.blocks, self.first.tolist(), strict=True):
            inside = np.flatnonzero(block.member)
            rows.append(inside + n_runs * block.slope)
            columns.append(first + block.member[inside])
        row, column = np.concatenate(rows), np.concatenate(columns)
        return csr_array((np.ones(len(row)), (row, column)), (2 * n_runs, self.parameters))


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Sums over each run (m,) of n p (1 - p), and of that x distance, and x distance squared."""

    none: NDArray[np.float64]
    one: NDArray[np.float64]
    two: NDArray[np.float64]

    def turn(
        self, offset: NDArray[np.float64], slope: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The curvature x a shift of the runs, (m,) each."""
        return self.none * offset + self.one * slope, self.one * offset + self.two * slope
