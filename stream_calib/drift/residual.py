"""Residual detectors: is the outcome still what is served, in every watched cell?

An e-detector of Shiryaev-Roberts type (Shin, Ramdas and Rinaldo 2022) for each cell and shift d in log-odds, moved pane
by pane. With n labelled events of the cell in the pane, and the sum l of their log-likelihood ratios over phi
(residual_evidence.py):

    log M <- logaddexp(log M, log n) + l.

The cell alarms when the mean over d of its M reaches A K, and starts again. While each label's probability, given
everything earlier, lies within epsilon of what is served, E[M] grows by at most n a pane, so the expected number of
alarms of a cell is at most its labelled events / (A K): over K families, each a partition, N / A among N events.

One state serves one budget. Those for refits and for pages are moved by the same evidence, each reset by its own
alarms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.drift.residual_lattice import decode, encode, round_down

SHIFTS = (-1.6, -1.0, -0.4, -0.15, 0.15, 0.4, 1.0, 1.6)
"""d, in log-odds. All eight alike at every base rate. What the outer two cost where they do not help is log(8 / 6) =
.29 of evidence; what it costs to do without them there was measured (docs/drift.md, Cells that come and go)."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class WatchedCells:
    """What a snapshot freezes for its detectors: C cells in K families, each family a partition.

    Raises ValueError where shapes differ, names repeat, or a value is outside of what is said here.
    """

    names: Sequence[str]
    """(C,) unique; a detector lives on under its name when snapshots follow each other."""
    family: NDArray[np.intp]
    """(C,) 0 .. K - 1."""
    epsilon: Floats
    """(C,) how far the outcome may be off what is served, in probability; 0 .. 1."""
    phi: Floats
    """(K,) overdispersion of each family, at least 1."""
    labelled_per_pane: float
    """Trailing rate of labelled events, by which the budget in time becomes one in events. 0: nothing alarms."""

    def __post_init__(self) -> None:
        cells, families = len(self.names), len(self.phi)
        if self.family.shape != (cells,) or self.epsilon.shape != (cells,):
            shapes = f"family {self.family.shape}, epsilon {self.epsilon.shape}"
            raise ValueError(f"watched cells: {cells} names, but {shapes}: one of each for every cell")
        if len(set(self.names)) != cells:
            raise ValueError("watched cells: names repeat: each cell needs its own, or detectors would be mixed up")
        if cells and not (self.family.min() >= 0 and self.family.max() < families):
            raise ValueError(f"watched cells: family must lie in 0 .. {families - 1}, one for each phi")
        if not ((self.epsilon >= 0) & (self.epsilon <= 1)).all():
            raise ValueError("watched cells: epsilon must lie in 0 .. 1: it is a difference of probabilities")
        if not ((self.phi >= 1) & np.isfinite(self.phi)).all():
            raise ValueError("watched cells: phi must be finite and at least 1")
        if not 0 <= self.labelled_per_pane < math.inf:
            raise ValueError(f"watched cells: labelled_per_pane = {self.labelled_per_pane} must be finite, at least 0")


@dataclass(frozen=True, slots=True, eq=False)
class ResidualSums:
    """The labelled events of one pane by cell and served probability; columns (k,), in any order, pairs may repeat."""

    cell: NDArray[np.intp]
    served: Floats
    labelled: NDArray[np.int64]
    positives: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PaneEvidence:
    """What a pane says about each of C cells; see residual_evidence.py."""

    labelled: NDArray[np.int64]
    """(C,) events."""
    log_ratio: Floats
    """(C, shifts) sums of l_d over phi."""


@dataclass(frozen=True, slots=True, eq=False)
class ResidualState:
    """log M by cell name and shift; carried from pane to pane, over snapshots. `to_text` and `from_text` are exact
    inverses."""

    names: tuple[str, ...] = ()
    log_m: Floats | None = None
    """(cells, shifts); -inf where nothing has come yet. None: no cells."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ResidualState):
            return NotImplemented
        return self.names == other.names and np.array_equal(self.rows, other.rows)

    __hash__ = None  # type: ignore[assignment]  # equal by the content of an array

    @property
    def rows(self) -> Floats:
        """(cells, shifts) `log_m`, also where there are no cells."""
        return np.empty((0, len(SHIFTS))) if self.log_m is None else self.log_m

    def carried_to(self, names: Sequence[str]) -> Floats:
        """(C, shifts) log M of the cells `names`: a new one begins with nothing, one that is watched no more is let
        go. A copy."""
        if tuple(names) == self.names:
            return np.array(self.rows)
        place = {name: i for i, name in enumerate(self.names)}
        found = np.array([place.get(name, -1) for name in names], dtype=np.intp)
        carried = np.full((len(names), len(SHIFTS)), -np.inf)
        known = found >= 0
        carried[known] = self.rows[found[known]]
        return carried

    def to_text(self) -> str:
        """32 characters a cell, and its name. Raises ValueError for values that `advance` cannot have made."""
        return encode(self.names, self.rows)

    @classmethod
    def from_text(cls, text: str) -> ResidualState:
        """Raises StateFormatError where the text is not what `to_text` makes."""
        names, log_m = decode(text, len(SHIFTS))
        return cls(names, log_m) if names else cls()


@dataclass(frozen=True, slots=True)
class ResidualAlarm:
    """A cell whose mean over shifts of M reached A K."""

    cell: int
    name: str
    log_evidence: float
    """log(mean M / (A K)) >= 0."""
    shift: float
    """d with the largest M."""


def advance(
    state: ResidualState, watched: WatchedCells, evidence: PaneEvidence, budget_panes: float
) -> tuple[ResidualState, tuple[ResidualAlarm, ...]]:
    """The state after a pane, and the cells that alarm with it, by index; those have started again.

    At most one false alarm is expected in `budget_panes` panes of `labelled_per_pane` labelled events, over all cells.
    A cell without events keeps its value and does not alarm. Raises ValueError where `evidence` has other cells than
    `watched`.
    """
    cells = len(watched.names)
    if evidence.log_ratio.shape != (cells, len(SHIFTS)) or evidence.labelled.shape != (cells,):
        raise ValueError(f"evidence has the shape {evidence.log_ratio.shape}, there are {cells} watched cells")
    log_m = state.carried_to(watched.names)
    # A cell of which nothing came stays as it is and says nothing, though a new snapshot's threshold be below its M.
    (active,) = evidence.labelled.nonzero()
    log_n = np.log(evidence.labelled[active].astype(np.float64))
    moved = np.logaddexp(log_m[active], log_n[:, None]) + evidence.log_ratio[active]
    threshold = log_threshold(watched, budget_panes)
    alarms: tuple[ResidualAlarm, ...] = ()
    # The mean is at most the largest.
    if moved.max(initial=-np.inf) >= threshold:
        near = np.flatnonzero(moved.max(axis=1) >= threshold)
        above = log_mean(moved[near]) - threshold
        alarming = near[above >= 0]
        alarms = tuple(
            ResidualAlarm(int(active[i]), watched.names[active[i]], float(by), SHIFTS[int(moved[i].argmax())])
            for i, by in zip(alarming.tolist(), above[above >= 0].tolist(), strict=True)
        )
        moved[alarming] = -np.inf
    log_m[active] = round_down(moved)
    return ResidualState(tuple(watched.names), log_m), alarms


def log_threshold(watched: WatchedCells, budget_panes: float) -> float:
    """log(A K), A = `labelled_per_pane` x `budget_panes`; infinite where no labels were there to be counted."""
    events = watched.labelled_per_pane * budget_panes * len(watched.phi)
    return math.log(events) if events > 0 else math.inf


def log_mean(log_m: Floats) -> Floats:
    """(C,) log of the mean over shifts of M, of log M (C, shifts); -inf where all are 0."""
    largest = log_m.max(axis=1, initial=-np.inf)
    known = np.where(np.isfinite(largest), largest, 0.0)
    total = np.zeros(len(log_m))
    for column in log_m.T:
        total += np.exp(column - known)
    with np.errstate(divide="ignore"):
        return np.asarray(known + np.log(total / log_m.shape[1]), dtype=np.float64)
