"""Labelled, positives and winners of the fit buckets per (signature, grid bin), decayed at two time scales."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.refit.decay import Decay, halve
from stream_calib.windows.cells import MaturedCells

_LABELLED, _POSITIVES, _WINNERS, _LEVEL_LABELLED, _LEVEL_POSITIVES = range(5)


@dataclass(frozen=True, slots=True)
class FitCells:
    """Decayed rows by (signature, grid bin), sorted by these two; every column has shape (k,)."""

    signature: NDArray[np.uint64]
    grid_bin: NDArray[np.uint16]
    labelled: NDArray[np.float64]
    positives: NDArray[np.float64]
    winners: NDArray[np.float64]
    """Labelled or not; counted from incomplete panes too."""
    level_labelled: NDArray[np.float64]
    """At the half-life of the level, as the next."""
    level_positives: NDArray[np.float64]


class DecayedCounts:
    """Sums in fixed point (see decay.py). Two that saw the same panes hold the same bits."""

    def __init__(self, structure_half_life_panes: int, level_half_life_panes: int) -> None:
        self._structure = Decay(structure_half_life_panes)
        self._level = Decay(level_half_life_panes)
        self._step = -1
        self._used = 0
        self._signature = np.empty(64, np.uint64)
        self._bin = np.empty(64, np.uint16)
        self._sums = np.zeros((5, 64), np.int64)
        self._slot_of: dict[tuple[int, int], int] = {}

    def advance(self, cells: MaturedCells, complete: bool) -> None:
        """Ages everything by one pane and adds that pane's cells; of an incomplete pane only the winners."""
        self._step += 1
        if self._structure.halves_before(self._step):
            halve(self._sums[: _WINNERS + 1, : self._used])
        if self._level.halves_before(self._step):
            halve(self._sums[_LEVEL_LABELLED:, : self._used])
        if not len(cells.signature):
            return
        slots = self._slots(cells.signature, cells.grid_bin)
        weight, level_weight = self._structure.weight(self._step), self._level.weight(self._step)
        np.add.at(self._sums[_WINNERS], slots, (cells.labelled + cells.unlabelled) * weight)
        if complete:
            np.add.at(self._sums[_LABELLED], slots, cells.labelled * weight)
            np.add.at(self._sums[_POSITIVES], slots, cells.positives * weight)
            np.add.at(self._sums[_LEVEL_LABELLED], slots, cells.labelled * level_weight)
            np.add.at(self._sums[_LEVEL_POSITIVES], slots, cells.positives * level_weight)

    def cells(self) -> FitCells:
        """The decayed rows as of the last pane, in which each row of that pane counts 1."""
        order = self._order()
        sums, step = self._sums[:, order], max(self._step, 0)
        structure, level = self._structure.rows(sums[:3], step), self._level.rows(sums[3:], step)
        return FitCells(self._signature[order], self._bin[order], *structure, *level)

    def _order(self) -> NDArray[np.intp]:
        return np.lexsort((self._bin[: self._used], self._signature[: self._used]))

    def _slots(self, signature: NDArray[np.uint64], grid_bin: NDArray[np.uint16]) -> NDArray[np.int64]:
        slot_of, before = self._slot_of, self._used
        keys = list(zip(signature.tolist(), grid_bin.tolist(), strict=True))
        # setdefault hands out the next slot to a key that is not known yet.
        slots = np.array([slot_of.setdefault(key, len(slot_of)) for key in keys], dtype=np.int64)
        self._used = len(slot_of)
        if self._used > len(self._signature):
            size = max(self._used, 2 * len(self._signature))
            self._signature = np.concatenate([self._signature, np.empty(size - len(self._signature), np.uint64)])
            self._bin = np.concatenate([self._bin, np.empty(size - len(self._bin), np.uint16)])
            self._sums = np.concatenate([self._sums, np.zeros((5, size - self._sums.shape[1]), np.int64)], axis=1)
        if self._used > before:
            new = slots >= before
            self._signature[slots[new]], self._bin[slots[new]] = signature[new], grid_bin[new]
        return slots
