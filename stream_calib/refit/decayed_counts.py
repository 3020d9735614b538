"""Labelled, positives and winners of the fit buckets per (signature, derived values, grid bin), decayed at two time
scales."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.grid import N_BINS
from stream_calib.refit.decay import Decay, halve
from stream_calib.windows.cells import MaturedCells

_KINDS = 6
_LABELLED, _POSITIVES, _WINNERS, _MISSING, _LEVEL_LABELLED, _LEVEL_POSITIVES = range(_KINDS)
_LEAST_WAITING = 20_000
"""Cells that may wait before they are merged."""
_SPENT_BITS = 10
"""A cell that has decayed to 2^-10 rows is dropped; else every cell that ever was would stay for ever."""


@dataclass(frozen=True, slots=True)
class CountsState:
    """The sums of a `DecayedCounts` in an order that depends on the panes alone: by signature, derived values, bin."""

    step: int
    """Panes that were added, less one."""
    derived_values: tuple[tuple[str, ...], ...]
    """Those that are in use, sorted."""
    signature: NDArray[np.uint64]
    derived: NDArray[np.intp]
    """(k,) place in `derived_values`."""
    grid_bin: NDArray[np.uint16]
    sums: NDArray[np.int64]
    """(6, k) in fixed point: labelled, positives, winners, winners of incomplete panes; labelled and positives at the
    half-life of the level."""


@dataclass(frozen=True, slots=True)
class FitCells:
    """Decayed rows by (signature, derived values, grid bin), sorted by these; every column has shape (k,)."""

    signature: NDArray[np.uint64]
    derived: NDArray[np.intp]
    """Place of the pane's derived values in `derived_values`."""
    grid_bin: NDArray[np.uint16]
    labelled: NDArray[np.float64]
    positives: NDArray[np.float64]
    winners: NDArray[np.float64]
    """Labelled or not; counted from incomplete panes too."""
    missing: NDArray[np.float64]
    """Winners of incomplete panes: whether they have a label is not known."""
    level_labelled: NDArray[np.float64]
    """At the half-life of the level, as the next."""
    level_positives: NDArray[np.float64]
    derived_values: tuple[tuple[str, ...], ...]


class DecayedCounts:
    """Sums in fixed point (see decay.py). Two that saw the same panes hold the same bits.

    The cells of new panes wait in a list, and are merged into the sorted columns when they are as many, or are asked
    for, or before all is halved; sums are whole numbers, so when they are added makes no difference.
    """

    def __init__(self, structure_half_life_panes: int, level_half_life_panes: int) -> None:
        self._structure = Decay(structure_half_life_panes)
        self._level = Decay(level_half_life_panes)
        self._step = -1
        self._numbers: dict[tuple[int, tuple[str, ...]], int] = {}
        """Of each (signature, derived values), in order of appearance."""
        self._key = np.empty(0, np.int64)
        """Number x N_BINS + grid bin, increasing."""
        self._sums = np.empty((_KINDS, 0), np.int64)
        self._waiting: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        self._waiting_cells = 0
        self._cells: FitCells | None = None
        """As of the last pane, once they were asked for."""

    def advance(self, cells: MaturedCells, complete: bool, derived: tuple[str, ...] = ()) -> None:
        """Ages everything by one pane and adds that pane's cells; of an incomplete pane only the winners.

        `derived`: values of the attributes that are derived from the pane's time.
        """
        self._step += 1
        self._cells = None
        if self._structure.halves_before(self._step):
            self._merge()
            halve(self._sums[:_LEVEL_LABELLED])
        if self._level.halves_before(self._step):
            self._merge()
            halve(self._sums[_LEVEL_LABELLED:])
        if self._structure.halves_before(self._step):
            self._drop_spent()
        if not len(cells.signature):
            return
        distinct, place = np.unique(cells.signature, return_inverse=True)
        numbers = self._numbers
        # setdefault hands out the next number to a signature that is not known yet.
        number = np.array([numbers.setdefault((s, derived), len(numbers)) for s in distinct.tolist()], np.int64)
        weight, level_weight = self._structure.weight(self._step), self._level.weight(self._step)
        added = np.zeros((_KINDS, len(place)), np.int64)
        added[_WINNERS] = (cells.labelled + cells.unlabelled) * weight
        if complete:
            added[_LABELLED] = cells.labelled * weight
            added[_POSITIVES] = cells.positives * weight
            added[_LEVEL_LABELLED] = cells.labelled * level_weight
            added[_LEVEL_POSITIVES] = cells.positives * level_weight
        else:
            added[_MISSING] = added[_WINNERS]
        self._waiting.append((number[place] * N_BINS + cells.grid_bin, added))
        self._waiting_cells += len(place)
        if self._waiting_cells > max(len(self._key), _LEAST_WAITING):
            self._merge()

    def restored_from(self, state: CountsState) -> DecayedCounts:
        """One of the same half-lives that goes on from `state`, to the same bits as the one that it was taken of."""
        made = DecayedCounts(self._structure.half_life_panes, self._level.half_life_panes)
        made._step = state.step
        changed = np.ones(len(state.signature), dtype=bool)
        changed[1:] = (state.signature[1:] != state.signature[:-1]) | (state.derived[1:] != state.derived[:-1])
        first = np.flatnonzero(changed)
        pairs = zip(state.signature[first].tolist(), state.derived[first].tolist(), strict=True)
        made._numbers = {(s, state.derived_values[d]): number for number, (s, d) in enumerate(pairs)}
        made._key = (np.cumsum(changed) - 1) * N_BINS + state.grid_bin.astype(np.int64)
        made._sums = state.sums.copy()
        return made

    def cells(self) -> FitCells:
        """The decayed rows as of the last pane, in which each row of that pane counts 1; the same until the next."""
        if self._cells is None:
            self._cells = self._as_rows()
        return self._cells

    def _as_rows(self) -> FitCells:
        state = self.state()
        step = max(state.step, 0)
        labelled, positives, winners, missing = self._structure.rows(state.sums[:_LEVEL_LABELLED], step)
        level_labelled, level_positives = self._level.rows(state.sums[_LEVEL_LABELLED:], step)
        return FitCells(
            state.signature,
            state.derived,
            state.grid_bin,
            labelled,
            positives,
            winners,
            missing,
            level_labelled,
            level_positives,
            state.derived_values,
        )

    def state(self) -> CountsState:
        """The sums as they are."""
        self._merge()
        derived_values = tuple(sorted({derived for _, derived in self._numbers}))
        derived_place = {derived: i for i, derived in enumerate(derived_values)}
        signature = np.array([signature for signature, _ in self._numbers], dtype=np.uint64)
        derived = np.array([derived_place[derived] for _, derived in self._numbers], dtype=np.intp)
        rank = np.empty(len(signature), np.int64)
        rank[np.lexsort((derived, signature))] = np.arange(len(signature))
        number, grid_bin = np.divmod(self._key, N_BINS)
        order = np.argsort(rank[number] * N_BINS + grid_bin)
        number = number[order]
        return CountsState(
            self._step,
            derived_values,
            signature[number],
            derived[number],
            grid_bin[order].astype(np.uint16),
            self._sums[:, order],
        )

    def _drop_spent(self) -> None:
        """After the halving of the structure's sums, so that it is the same whatever was merged when."""
        self._merge()
        spent = self._sums[_WINNERS] <= max(1, self._structure.weight(self._step) >> _SPENT_BITS)
        spent &= self._sums[_LEVEL_LABELLED] <= max(1, self._level.weight(self._step) >> _SPENT_BITS)
        if not spent.any():
            return
        number, grid_bin = np.divmod(self._key[~spent], N_BINS)
        used, place = np.unique(number, return_inverse=True)
        names = list(self._numbers)
        self._numbers = {names[n]: new for new, n in enumerate(used.tolist())}
        self._key, self._sums = place * N_BINS + grid_bin, self._sums[:, ~spent]

    def _merge(self) -> None:
        if not self._waiting:
            return
        key = np.concatenate([self._key, *(key for key, _ in self._waiting)])
        sums = np.concatenate([self._sums, *(added for _, added in self._waiting)], axis=1)
        order = np.argsort(key, kind="stable")
        in_order = key[order]
        starts = np.flatnonzero(np.concatenate([[True], in_order[1:] != in_order[:-1]]))
        self._key = in_order[starts]
        self._sums = np.add.reduceat(sums[:, order], starts, axis=1)
        self._waiting, self._waiting_cells = [], 0
