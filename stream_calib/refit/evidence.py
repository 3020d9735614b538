"""What a refit is made from, carried over the matured panes: decayed counts, trailing panes, coverage, chain hash.

A pure function of the matured blobs from the generation's first pane on, and of the settings.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.config import Config
from stream_calib.drift.coverage import CoverageState, judge
from stream_calib.refit.decayed_counts import DecayedCounts
from stream_calib.refit.roles import IS_FIT, IS_GATE
from stream_calib.refit.settings import panes_of
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.pane_record import chained

PSI_WINDOWS = 28
"""Past PSI windows kept for the design effect."""


@dataclass(frozen=True, slots=True)
class GatePane:
    """The labelled cells of the gate's buckets in one pane."""

    pane: int
    complete: bool
    winners: int
    """Of the whole pane."""
    cells: MaturedCells


@dataclass(frozen=True, slots=True)
class PastWindow:
    """One whole PSI window of matured panes, all unit buckets."""

    winners: ScoredCells
    labelled: int


class Evidence:
    """Advance it pane by pane from `first_pane`; read what a fit and a gate need at any time."""

    def __init__(self, first_pane: int, config: Config) -> None:
        pane_ms = config.windows.pane_ms
        self.first_pane = first_pane
        self.next_pane = first_pane
        self.cells_sha256 = ""
        """Chain hash of the blobs so far."""
        self.counts = DecayedCounts(
            panes_of(config.calibration.structure_half_life_ms, pane_ms),
            panes_of(config.calibration.level_half_life_ms, pane_ms),
        )
        self.fit_rows = 0
        """Labelled rows of complete panes in fit buckets, not decayed."""
        self.fit_positives = 0
        self.gate_panes: deque[GatePane] = deque(maxlen=panes_of(config.refit.gate_window_ms, pane_ms))
        self.window_panes = panes_of(config.drift.psi_window_ms, pane_ms)
        self.windows: deque[PastWindow] = deque(maxlen=PSI_WINDOWS)
        """Oldest first."""
        self._window_parts: list[ScoredCells] = []
        self._window_labelled = 0
        self._coverage = CoverageState()

    @property
    def last_pane(self) -> int:
        return self.next_pane - 1

    def advance(self, pane: int, blob: bytes) -> None:
        """Takes the next pane's packed matured cells. Raises ValueError out of order, StateError for damaged bytes."""
        if pane != self.next_pane:
            raise ValueError(f"evidence is at pane {self.next_pane}; pane {pane} cannot be added now")
        cells = MaturedCells.unpack(blob)
        labelled, winners = int(cells.labelled.sum()), int(cells.labelled.sum() + cells.unlabelled.sum())
        verdict = judge(self._coverage, pane, labelled, winners - labelled)
        self._coverage = verdict.state
        fit = IS_FIT[cells.unit_bucket]
        self.counts.advance(_rows(cells, fit), verdict.complete)
        if verdict.complete:
            self.fit_rows += int(cells.labelled[fit].sum())
            self.fit_positives += int(cells.positives[fit].sum())
        gate = _rows(cells, IS_GATE[cells.unit_bucket] & (cells.labelled > 0))
        self.gate_panes.append(GatePane(pane, verdict.complete, winners, gate))
        self._window_parts.append(ScoredCells(cells.signature, cells.grid_bin, cells.labelled + cells.unlabelled))
        self._window_labelled += labelled
        if len(self._window_parts) == self.window_panes:
            self.windows.append(PastWindow(ScoredCells.merge(self._window_parts), self._window_labelled))
            self._window_parts, self._window_labelled = [], 0
        self.cells_sha256 = chained(self.cells_sha256, blob)
        self.next_pane = pane + 1


def _rows(cells: MaturedCells, chosen: NDArray[np.bool_]) -> MaturedCells:
    return MaturedCells(
        cells.unit_bucket[chosen],
        cells.signature[chosen],
        cells.grid_bin[chosen],
        cells.labelled[chosen],
        cells.positives[chosen],
        cells.unlabelled[chosen],
    )
