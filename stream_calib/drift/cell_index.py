"""Which watched cells an event is in: its groups, and the interval of the probability that it is served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.grid import N_BINS, locate
from stream_calib.calibration.groups import FamilyRule, GroupKey, Signature
from stream_calib.calibration.intervals import checked_edges
from stream_calib.drift.residual import ResidualSums

SUM_ONE = 1 << 32
"""Fixed point of probability 1 in sums: whole numbers come out the same in whatever order they are added."""


@dataclass(frozen=True, slots=True, eq=False)
class IndexedFamily:
    """One partition. `row`: the group's place in `cells` (groups, m), which holds numbers of cells, -1 for none; m is
    the number of intervals, or 1 where cells are whole groups."""

    rule: FamilyRule
    row: Mapping[GroupKey, int]
    cells: NDArray[np.intp]


class CellIndex:
    """The cells of several families over one set of intervals of probability."""

    def __init__(self, families: Sequence[IndexedFamily], edges: Sequence[float], cells: int) -> None:
        """`edges`: of the intervals, from 0 to 1. `cells`: their number over all families."""
        self.families = tuple(families)
        self.edges = tuple(edges)
        self.size = cells
        self._inner_edges = checked_edges(edges)[1:-1]

    def rows_of(self, signatures: Sequence[Signature]) -> NDArray[np.intp]:
        """(s, F) row of each signature's group in each family, -1 where it has none that is watched."""
        found = np.empty((len(signatures), len(self.families)), dtype=np.intp)
        groups: dict[FamilyRule, list[GroupKey | None]] = {}
        for j, family in enumerate(self.families):
            if family.rule not in groups:  # of several families by intervals and without
                groups[family.rule] = family.rule.groups(signatures)
            row = family.row
            found[:, j] = [-1 if key is None else row.get(key, -1) for key in groups[family.rule]]
        return found

    def sums(
        self,
        rows: NDArray[np.intp],
        current: NDArray[np.float64],
        served: NDArray[np.float64],
        n: NDArray[np.int64],
        positives: NDArray[np.int64],
        part: NDArray[np.intp] | None = None,
    ) -> ResidualSums:
        """Sums over k entries of n (k,) events each, by cell and level of probability.

        `rows` (k, F) of each entry's signature. `current` (k,) decides about intervals, `served` (k,) is what outcomes
        are compared with (the same unless labels are thinned by class). A level is a bin of the grid, here of the
        probability. Its events are taken at their mean: log(1 + f (e^d - 1)) is concave in f, so that can only make
        evidence less (Jensen's inequality).

        `part` (k,): summed apart, those of part i with cells numbered from i C on.
        """
        interval = np.searchsorted(self._inner_edges, current, side="right")
        level = locate(served)[0].astype(np.intp)
        amount = np.rint(served * SUM_ONE).astype(np.int64) * n
        cells, entries = [], []
        for j, family in enumerate(self.families):
            row = rows[:, j]
            inside = np.flatnonzero(row >= 0)
            column = interval[inside] if family.cells.shape[1] > 1 else 0
            cell = family.cells[row[inside], column]
            watched = cell >= 0
            cells.append(cell[watched] if part is None else cell[watched] + part[inside[watched]] * self.size)
            entries.append(inside[watched])
        entry = np.concatenate([np.empty(0, np.intp), *entries])
        place, member = np.unique(
            np.concatenate([np.empty(0, np.intp), *cells]) * N_BINS + level[entry], return_inverse=True
        )
        labelled, found, amounts = np.zeros((3, len(place)), dtype=np.int64)
        for total, values in ((labelled, n), (found, positives), (amounts, amount)):
            np.add.at(total, member.reshape(-1), values[entry])
        kept = np.flatnonzero(labelled)
        labelled, found, amounts, place = labelled[kept], found[kept], amounts[kept], place[kept]
        return ResidualSums(place // N_BINS, amounts / (labelled * float(SUM_ONE)), labelled, found)
