"""Since when, and by how much, outcomes of each watched cell are off: what an alarm's evidence and diagnosis are of.

A detector's evidence is a mean over all panes in which the change may have begun. The most likely one is where the
cumulative sum of l_d last was at 0 (Page, "Continuous inspection schemes", 1954): W <- max(0, W + l_d). From that pane
on the cell's events are counted, and with them those of everything beside it. Of the detectors' shifts the four inner
ones are tracked: the sign and the size of a larger one make no difference to where it began.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stream_calib.drift.diagnosis import OutcomeSums
from stream_calib.drift.residual import SHIFTS, PaneEvidence, ResidualSums, WatchedCells
from stream_calib.errors import StateFormatError

EVERYTHING = "all"
"""Name of the cell that holds every event."""
_TRACKED = np.array([-0.4, -0.15, 0.15, 0.4])
"""(T,) shifts."""
_COLUMN = np.array([SHIFTS.index(d) for d in _TRACKED.tolist()])
_W_ONE, _P_ONE = 1 << 16, 1 << 20
"""Fixed points of evidence 1 and of probability 1."""
_MEASURES = 4
_W, _SINCE, _OWN, _BEFORE, _WIDTH = 0, 1, slice(2, 2 + _MEASURES), slice(2 + _MEASURES, 2 + 2 * _MEASURES), 10


def _nothing(*shape: int) -> NDArray[np.int64]:
    return np.zeros((*shape, _MEASURES), dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class CellView:
    """One cell since its outcomes most likely moved."""

    since_pane: int
    own: OutcomeSums
    """Of shape (1,)."""
    partitions: Sequence[tuple[OutcomeSums, float]]
    """What is compared, with phi: the cell and everything else, (2,); of EVERYTHING the cells of each other family."""


@dataclass(frozen=True, slots=True, eq=False)
class CellHistory:
    """Carried from pane to pane, in whole numbers. Measures: events, positives, sum of probability p, of p (1 - p)."""

    names: tuple[str, ...] = ()
    tracks: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, len(_TRACKED), _WIDTH), dtype=np.int64))
    """(C, T, 10): W; first pane since W was 0; the cell's measures since; those of everything before that pane."""
    total: NDArray[np.int64] = field(default_factory=lambda: _nothing(0))
    """(C, 4): measures of the cells since they are watched."""
    origins: NDArray[np.int64] = field(default_factory=lambda: _nothing(len(_TRACKED), 0))
    """(T, C, 4): the same before the first pane of the cell EVERYTHING; 0 where that begins anew."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CellHistory) and (self.names, self.to_json()) == (other.names, other.to_json())

    __hash__ = None  # type: ignore[assignment]  # equal by the content of arrays

    def of(self, cell: int, shift: float, watched: WatchedCells) -> CellView:
        """The cell as the tracked shift that is nearest to an alarm's `shift` sees it."""
        track = int(np.abs(_TRACKED - shift).argmin())
        row, family = self.tracks[cell, track], watched.family[cell]
        own, before = row[_OWN], row[_BEFORE]
        if self.names[cell] == EVERYTHING:
            since = self.total - self.origins[track]
            others = [f for f in range(len(watched.phi)) if f != family]
            partitions = [(_sums(since[watched.family == f]), float(watched.phi[f])) for f in others]
        else:
            everything = self.total[self.names.index(EVERYTHING)]
            partitions = [(_sums(np.stack([own, everything - before - own])), float(watched.phi[family]))]
        return CellView(int(row[_SINCE]), _sums(own[None, :]), partitions)

    def to_json(self) -> list[str]:
        """Without the names, which are those of the detectors, and without tracks that begin anew with the next
        pane."""
        tracks = self.tracks.reshape(-1, _WIDTH)
        live = np.flatnonzero(tracks[:, _W])
        return [_text(a) for a in (live, tracks[live], self.total, self.origins[self._live_origins()])]

    def _live_origins(self) -> NDArray[np.bool_]:
        """(T,) tracks of EVERYTHING that go on."""
        if EVERYTHING not in self.names:
            return np.zeros(len(_TRACKED), dtype=bool)
        return self.tracks[self.names.index(EVERYTHING), :, _W] > 0

    @classmethod
    def from_json(cls, names: tuple[str, ...], document: list[str]) -> CellHistory:
        """Raises StateFormatError where it cannot be read."""
        try:
            live, rows, total, origins = (np.frombuffer(base64.b64decode(text), dtype="<i8") for text in document)
            tracks = np.zeros((len(names) * len(_TRACKED), _WIDTH), dtype=np.int64)
            tracks[live] = rows.reshape(-1, _WIDTH)
            made = cls(
                names,
                tracks.reshape(len(names), len(_TRACKED), _WIDTH),
                total.reshape(len(names), _MEASURES),
                _nothing(len(_TRACKED), len(names)),
            )
            made.origins[made._live_origins()] = origins.reshape(-1, len(names), _MEASURES)
        except (ValueError, IndexError, TypeError) as error:
            raise StateFormatError(f"stored histories of {len(names)} watched cells cannot be read: {error}") from error
        return made


def advance_history(
    history: CellHistory,
    watched: WatchedCells,
    sums: ResidualSums,
    evidence: PaneEvidence,
    pane: int,
    restarted: Collection[str] = (),
    measures: NDArray[np.int64] | None = None,
) -> CellHistory:
    """The history after a pane with these sums and what they say. Cells of the names `restarted` begin anew with it.
    `measures`: `pane_measures` of the sums, where somebody has made them already.

    EVERYTHING is among the watched cells.
    """
    names = tuple(watched.names)
    everything = names.index(EVERYTHING)
    own = pane_measures(watched, sums) if measures is None else measures
    tracks, total, origins = _carried(history, names)
    for name in restarted:
        if name in names:
            tracks[names.index(name), :, _W] = 0
    # A cell of which nothing came stays as it is.
    (active,) = own[:, 0].nonzero()
    moved = tracks[active]
    begins = np.zeros(_WIDTH, dtype=np.int64)
    begins[_SINCE], begins[_BEFORE] = pane, total[everything]
    moved[moved[:, :, _W] == 0] = begins
    moved[:, :, _OWN] += own[active, None, :]
    steps = np.floor(evidence.log_ratio[active[:, None], _COLUMN] * _W_ONE).astype(np.int64)
    moved[:, :, _W] = np.maximum(moved[:, :, _W] + steps, 0)
    fresh_everything = (tracks[everything, :, _W] == 0) & (own[everything, 0] > 0)
    origins = np.where(fresh_everything[:, None, None], total, origins)
    tracks[active] = moved
    return CellHistory(names, tracks, total + own, origins)


def pane_measures(watched: WatchedCells, sums: ResidualSums) -> NDArray[np.int64]:
    """(C, 4) of one pane: events, positives, sums of p and of p (1 - p) in fixed point."""
    return panes_measures(watched, sums, 1).reshape(-1, _MEASURES)


def panes_measures(watched: WatchedCells, sums: ResidualSums, panes: int) -> NDArray[np.int64]:
    """(panes, C, 4): the same of several panes, cells of the i-th numbered from i C on."""
    probability = sums.labelled * sums.served
    columns = (
        sums.labelled,
        sums.positives,
        np.rint(probability * _P_ONE).astype(np.int64),
        np.rint(probability * (1.0 - sums.served) * _P_ONE).astype(np.int64),
    )
    cells = len(watched.names)
    own = np.zeros((_MEASURES, panes * cells), dtype=np.int64)
    for total, column in zip(own, columns, strict=True):
        np.add.at(total, sums.cell, column)
    return np.ascontiguousarray(own.T).reshape(panes, cells, _MEASURES)


def _carried(
    history: CellHistory, names: tuple[str, ...]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Copies of tracks, totals and origins for these cells; those of a new one are 0."""
    if history.names == names:
        return history.tracks.copy(), history.total, history.origins
    place = {name: i for i, name in enumerate(history.names)}
    found = np.array([place.get(name, -1) for name in names], dtype=np.intp)
    known, old = np.flatnonzero(found >= 0), found[found >= 0]
    tracks = np.zeros((len(names), len(_TRACKED), _WIDTH), dtype=np.int64)
    total, origins = _nothing(len(names)), _nothing(len(_TRACKED), len(names))
    tracks[known], total[known], origins[:, known] = history.tracks[old], history.total[old], history.origins[:, old]
    return tracks, total, origins


def _sums(measures: NDArray[np.int64]) -> OutcomeSums:
    """Of (g, 4) measures."""
    return OutcomeSums(measures[:, 0], measures[:, 1], measures[:, 2] / _P_ONE, measures[:, 3] / _P_ONE)


def _text(values: NDArray[np.int64]) -> str:
    return base64.b64encode(values.astype("<i8").tobytes()).decode()
