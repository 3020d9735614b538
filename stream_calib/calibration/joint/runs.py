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


@dataclass(frozen=True, slots=True, eq=False)
class MergedCells:
    """Cells, neighbours within a run and there in order of their bins; columns (k,). `starts` (m,): each run's first.

    `labelled`, `positives` float64: sums of each.
    """

    labelled: NDArray[np.float64]
    positives: NDArray[np.float64]
    starts: NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class StartingPoint:
    """Where one of the problems begins; columns (k,) of the cells.

    `log_odds`: before any shift. `distance`: from the slope centre; None where the problem has no slopes.
    """

    log_odds: NDArray[np.float64]
    distance: NDArray[np.float64] | None


class Runs:
    """m runs of cells and the parameters that move them, in V problems: each has a starting point of its own.

    A cell's log-odds are moved by the offsets of its groups and by their slopes x the cell's distance from the slope
    centre. Parameters (P, V) are of all blocks one below the other, of each block first an entry for runs in none of
    its groups, always 0, then its groups; a column is a problem. `first` (blocks,): where each block begins.

    What is summed over the cells of each run is (rows, V): m rows for offsets, and where any block is of slopes m more,
    in which a cell counts by its distance.
    """

    def __init__(self, cells: MergedCells, begins: Sequence[StartingPoint], blocks: Sequence[Block]) -> None:
        widths = np.array([block.size + 1 for block in blocks], dtype=np.intp)
        ends = np.cumsum(widths)
        self.blocks = tuple(blocks)
        self.first = ends - widths
        self.shape = int(widths.sum()), len(begins)
        self.begins = tuple(begins)
        self._widths = widths
        self._spans = list(zip(self.first.tolist(), ends.tolist(), strict=True))
        self._cells, self._starts = cells, cells.starts
        self._lengths = np.diff(cells.starts, append=len(cells.labelled))
        self._sloped = any(block.slope for block in blocks)
        self._design = self._designed(len(cells.starts))
        self._transposed = csr_array(self._design.T)
        self.rows = np.add.reduceat(cells.labelled, cells.starts)
        self._positives = np.add.reduceat(cells.positives, cells.starts)
        self._positives_apart = [
            None if begin.distance is None else np.add.reduceat(cells.positives * begin.distance, cells.starts)
            for begin in begins
        ]

    def split(self, parameters: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """The parameters of each block's groups (G, V)."""
        return [parameters[first + 1 : end] for first, end in self._spans]

    def join(self, parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """The parameters (P, V) from each block's groups' numbers (G, V)."""
        parameters = np.zeros(self.shape)
        for (first, end), part in zip(self._spans, parts, strict=True):
            parameters[first + 1 : end] = part
        return parameters

    def each(self, values: Sequence[float] | Sequence[Sequence[float]]) -> NDArray[np.float64]:
        """(P, V) with one value for all parameters of a block, from one for each block, or one for each of its
        problems."""
        of_blocks = np.array(values, dtype=np.float64).reshape(len(self.blocks), -1)
        return np.broadcast_to(np.repeat(of_blocks, self._widths, axis=0), self.shape)

    def shift(self, parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        """(rows, V) sums of the offsets, and below of the slopes, that each run has."""
        return np.asarray(self._design @ parameters)

    def by_group(self, of_runs: NDArray[np.float64]) -> NDArray[np.float64]:
        """(P, V) sums over the runs of each group, of (rows, V): for offsets of the upper part, for slopes of the
        lower."""
        return np.asarray(self._transposed @ of_runs)

    def farthest(self, parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        """(V,) the most that the parameters move the log-odds of any cell."""
        offset, slope = self._parts(self.shift(parameters))
        found: NDArray[np.float64] = np.abs(offset).max(axis=0)
        for column, begin in enumerate(self.begins):
            if begin.distance is not None:
                # Linear in the distance, so the most is at an end of the run.
                ends = begin.distance[self._starts], begin.distance[self._starts + self._lengths - 1]
                found[column] = max(np.abs(offset[:, column] + slope[:, column] * end).max() for end in ends)
        return found

    def probability(self, shift: NDArray[np.float64], problem: int) -> NDArray[np.float64]:
        """Fitted probabilities (k,) of the cells in one of the problems, given the shift of the runs."""
        offset, slope = self._parts(shift)
        begin = self.begins[problem]
        moved = begin.log_odds + np.repeat(offset[:, problem], self._lengths)
        if begin.distance is not None:
            moved += np.repeat(slope[:, problem], self._lengths) * begin.distance
        np.negative(moved, out=moved)
        with np.errstate(over="ignore"):
            np.exp(moved, out=moved)
        moved += 1.0
        return np.reciprocal(moved, out=moved)

    def expected(self, parameters: NDArray[np.float64], problem: int) -> NDArray[np.float64]:
        """Positives (m,) that the fit of one of the problems expects in each run."""
        return np.add.reduceat(self._cells.labelled * self.probability(self.shift(parameters), problem), self._starts)

    def rows_apart(self, problem: int) -> NDArray[np.float64]:
        """(m,) sums of labelled rows x their distance in one of the problems; 0 where it has no slopes."""
        distance = self.begins[problem].distance
        if distance is None:
            return np.zeros(len(self._starts))
        return np.add.reduceat(self._cells.labelled * distance, self._starts)

    def residuals_and_moments(
        self, parameters: NDArray[np.float64], asked: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], Moments]:
        """Gradient (P, V) of the log-likelihood, and the curvature at the parameters, of the problems that are `asked`
        (V,); 0 of the others."""
        shift = self.shift(parameters)
        residual = np.zeros(shift.shape)
        moments = Moments(*(np.zeros((len(self._starts), self.shape[1])) for _ in range(3 if self._sloped else 1)))
        of_offsets, of_slopes = self._parts(residual)
        for problem in np.flatnonzero(asked).tolist():
            distance, apart = self.begins[problem].distance, self._positives_apart[problem]
            p = self.probability(shift, problem)
            expected = self._cells.labelled * p
            of_offsets[:, problem] = self._positives - np.add.reduceat(expected, self._starts)
            if distance is not None and apart is not None:
                of_slopes[:, problem] = apart - np.add.reduceat(expected * distance, self._starts)
            np.subtract(1.0, p, out=p)
            expected *= p
            moments.none[:, problem] = np.add.reduceat(expected, self._starts)
            if distance is not None and moments.one is not None and moments.two is not None:
                expected *= distance
                moments.one[:, problem] = np.add.reduceat(expected, self._starts)
                expected *= distance
                moments.two[:, problem] = np.add.reduceat(expected, self._starts)
        return self.by_group(residual), moments

    def _parts(self, of_runs: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The upper part, and the lower, which is empty without slopes."""
        return of_runs[: len(self._starts)], of_runs[len(self._starts) :]

    def _designed(self, n_runs: int) -> csr_array:
        """(rows, P): 1 where a run has an offset, and m rows further where it has a slope."""
        rows, columns = [np.empty(0, np.intp)], [np.empty(0, np.intp)]
        for block, first in zip(self.blocks, self.first.tolist(), strict=True):
            inside = np.flatnonzero(block.member)
            rows.append(inside + n_runs * block.slope)
            columns.append(first + block.member[inside])
        row, column = np.concatenate(rows), np.concatenate(columns)
        return csr_array((np.ones(len(row)), (row, column)), (n_runs * (1 + self._sloped), self.shape[0]))


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Sums over each run (m, V) of n p (1 - p), and of that x distance, and x distance squared; both None where no
    problem has slopes."""

    none: NDArray[np.float64]
    one: NDArray[np.float64] | None = None
    two: NDArray[np.float64] | None = None

    def turn(self, shift: NDArray[np.float64]) -> NDArray[np.float64]:
        """The curvature x a shift of the runs, (rows, V) each."""
        if self.one is None or self.two is None:
            return self.none * shift
        offset, slope = shift[: len(self.none)], shift[len(self.none) :]
        return np.concatenate([self.none * offset + self.one * slope, self.one * offset + self.two * slope])

    @property
    def diagonal(self) -> NDArray[np.float64]:
        """(rows, V) the curvature of each run's own shifts."""
        return self.none if self.two is None else np.concatenate([self.none, self.two])
