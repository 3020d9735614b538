"""Since when, and by how much, outcomes of each watched cell are off: what an alarm's evidence and diagnosis are of.

A detector sums over an unknown beginning. The history of a cell begins anew at each pane in which a fresh start would
weigh more than all before: mean M <= n. From there on its events are counted, and those of everything beside it.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.intervals import interval_of, log_odds_intervals
from stream_calib.drift.diagnosis import OutcomeSums
from stream_calib.drift.residual import ResidualState, ResidualSums, WatchedCells, log_mean

EVERYTHING = "all"
"""Name of the cell that holds every event."""
STRATA = log_odds_intervals()
"""Intervals of probability by which everything is parted, m of them."""
_ONE = 1 << 20
"""Fixed point of probability 1."""
_MEASURES = 4
_COLUMNS = 1 + 2 * _MEASURES
_SINCE, _OWN, _BEFORE = 0, slice(1, 1 + _MEASURES), slice(1 + _MEASURES, _COLUMNS)


def _no_strata() -> NDArray[np.int64]:
    return np.zeros((len(STRATA) - 1, _MEASURES), dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class CellHistory:
    """Carried from pane to pane, in whole numbers. Measures: events, positives, sum of probability p, of p (1 - p)."""

    names: tuple[str, ...] = ()
    cells: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, _COLUMNS), dtype=np.int64))
    """(C, 9): first pane; the cell's measures since; those of everything before that pane."""
    total: NDArray[np.int64] = field(default_factory=_no_strata)
    """(m, 4): everything so far, by stratum."""
    origin: NDArray[np.int64] = field(default_factory=_no_strata)
    """(m, 4): the same before the first pane of the cell EVERYTHING."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CellHistory) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]  # equal by the content of arrays

    def since(self, cell: int) -> int:
        """First pane of the cell's history."""
        return int(self.cells[cell, _SINCE])

    def of_cell(self, cell: int) -> OutcomeSums:
        """Sums over the cell since its first pane, of shape (1,)."""
        return _sums(self.cells[cell : cell + 1, _OWN])

    def groups(self, cell: int) -> OutcomeSums:
        """What the cell is compared with since its first pane: (2,) the cell, and everything else; of EVERYTHING the
        strata (m,)."""
        if self.names[cell] == EVERYTHING:
            return _sums(self.total - self.origin)
        own, before = self.cells[cell, _OWN], self.cells[cell, _BEFORE]
        return _sums(np.stack([own, self.total.sum(axis=0) - before - own]))

    def to_json(self) -> list[str]:
        """Without the names, which are those of the detectors."""
        return [base64.b64encode(a.astype("<i8").tobytes()).decode() for a in (self.cells, self.total, self.origin)]

    @classmethod
    def from_json(cls, names: tuple[str, ...], document: list[str]) -> CellHistory:
        """Raises ValueError where lengths do not fit."""
        cells, total, origin = (np.frombuffer(base64.b64decode(text), dtype="<i8") for text in document)
        shape = (len(STRATA) - 1, _MEASURES)
        return cls(names, cells.reshape(len(names), _COLUMNS), total.reshape(shape), origin.reshape(shape))


def advance_history(
    history: CellHistory, before: ResidualState, watched: WatchedCells, sums: ResidualSums, pane: int
) -> CellHistory:
    """The history after a pane with events. `before`: the detectors before it."""
    size, names = len(watched.names), tuple(watched.names)
    probability = sums.labelled * sums.served
    measures = (
        sums.labelled,
        sums.positives,
        np.rint(probability * _ONE).astype(np.int64),
        np.rint(probability * (1.0 - sums.served) * _ONE).astype(np.int64),
    )
    own = np.zeros((size, _MEASURES), dtype=np.int64)
    for i, column in enumerate(measures):
        np.add.at(own[:, i], sums.cell, column)
    everything = names.index(EVERYTHING)
    rows = np.flatnonzero(sums.cell == everything)
    total = history.total.copy()
    stratum = interval_of(STRATA, sums.served[rows])
    for i, column in enumerate(measures):
        np.add.at(total[:, i], stratum, column[rows])
    cells = _carried(history, names)
    with np.errstate(divide="ignore"):
        fresh = log_mean(before.carried_to(names)) <= np.log(own[:, 0].astype(np.float64))
    fresh &= own[:, 0] > 0
    fresh |= (cells[:, 1] == 0) & (own[:, 0] > 0)
    cells[fresh, _SINCE] = pane
    cells[fresh, _OWN] = 0
    cells[fresh, _BEFORE] = history.total.sum(axis=0)
    cells[:, _OWN] += own
    origin = history.total if fresh[everything] else history.origin
    return CellHistory(names, cells, total, origin)


def _carried(history: CellHistory, names: tuple[str, ...]) -> NDArray[np.int64]:
    if names == history.names:
        return np.array(history.cells)
    place = {name: i for i, name in enumerate(history.names)}
    found = np.array([place.get(name, -1) for name in names], dtype=np.intp)
    cells: NDArray[np.int64] = np.zeros((len(names), _COLUMNS), dtype=np.int64)
    cells[found >= 0] = history.cells[found[found >= 0]]
    return cells


def _sums(measures: NDArray[np.int64]) -> OutcomeSums:
    """Of (g, 4) measures."""
    return OutcomeSums(measures[:, 0], measures[:, 1], measures[:, 2] / _ONE, measures[:, 3] / _ONE)
