"""Residual detectors: is the outcome still what is served, in every watched cell?

An e-detector (Shiryaev-Roberts) for each cell and shift d in log-odds, moved pane by pane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SHIFTS = (-1.6, -1.0, -0.4, -0.15, 0.15, 0.4, 1.0, 1.6)
"""d, in log-odds."""


@dataclass(frozen=True, slots=True)
class WatchedCells:
    """What a snapshot freezes for its detectors: C cells in K families, each family a partition."""

    names: Sequence[str]
    """(C,) unique; a detector lives on under its name when snapshots follow each other."""
    family: NDArray[np.intp]
    """(C,) 0 .. K - 1."""
    epsilon: NDArray[np.float64]
    """(C,) how far the outcome may be off what is served, in probability."""
    phi: NDArray[np.float64]
    """(K,) overdispersion of each family, at least 1."""
    labelled_per_pane: float
    """Trailing rate of labelled events, by which the budget in time becomes one in events."""


@dataclass(frozen=True, slots=True)
class ResidualSums:
    """The labelled events of one pane by cell and served probability; columns (k,), in any order, pairs may repeat."""

    cell: NDArray[np.intp]
    served: NDArray[np.float64]
    labelled: NDArray[np.int64]
    positives: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ResidualState:
    """log M by cell name and shift; carried from pane to pane, over snapshots. `to_text` and `from_text` are exact
    inverses."""

    names: tuple[str, ...] = ()
    log_m: NDArray[np.float64] | None = None
    """(cells, shifts); -inf where nothing has come yet."""


@dataclass(frozen=True, slots=True)
class ResidualAlarm:
    """A cell whose mean over shifts of M reached A K."""

    cell: int
    name: str
    log_evidence: float
    """log(mean M / (A K)) >= 0."""
    shift: float
    """d with the largest M."""
