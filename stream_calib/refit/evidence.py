"""What a refit is made from, carried over the matured panes: decayed counts, trailing panes, coverage, chain hash.

A pure function of the matured blobs from the generation's first pane on, and of the settings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stream_calib.config import Config
from stream_calib.drift.coverage import CoverageState, judge
from stream_calib.refit.decayed_counts import CountsState, DecayedCounts, FitCells
from stream_calib.refit.derived import derived_names, time_attributes
from stream_calib.refit.labelled import PaneCells
from stream_calib.refit.roles import IS_AUDITED, IS_FIT, IS_GATE
from stream_calib.refit.settings import DAY_MS, panes_of
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.pane_record import chained

PSI_WINDOWS = 28
"""Past PSI windows kept for the design effect."""
TRAILING_MS = 28 * DAY_MS
"""Mature panes that audits and the certificate look at, unweighted."""


@dataclass(frozen=True, slots=True)
class PastWindow:
    """One whole PSI window of matured panes, all unit buckets."""

    winners: ScoredCells
    labelled: int
    outcomes: tuple[PaneCells, ...]
    """The winners of its complete panes, unit buckets put together; panes of the same derived values are one here,
    which has the number of the first."""


class PastPanes(Protocol):
    """What a refit reads of the panes up to one."""

    @property
    def first_pane(self) -> int: ...
    @property
    def last_pane(self) -> int: ...
    @property
    def cells_sha256(self) -> str:
        """Chain hash of their blobs."""

    @property
    def fit_rows(self) -> int:
        """Labelled rows of complete panes in fit buckets, not decayed."""

    @property
    def fit_positives(self) -> int: ...
    @property
    def audited_panes(self) -> Collection[PaneCells]:
        """The labelled cells of the audit and certificate buckets in the trailing panes."""

    @property
    def gate_panes(self) -> Collection[PaneCells]:
        """The cells of the gate's buckets in the gate's window, also those without labelled rows."""

    @property
    def windows(self) -> Collection[PastWindow]:
        """Oldest first."""

    @property
    def window_panes(self) -> int: ...
    def fit_cells(self) -> FitCells:
        """Decayed counts of the fit buckets; not to be written to."""


@dataclass(frozen=True, slots=True)
class EvidenceSums:
    """What a checkpoint holds."""

    last_pane: int
    cells_sha256: str
    fit_rows: int
    fit_positives: int
    coverage: CoverageState
    counts: CountsState


class Evidence:
    """PastPanes that grow. Advance it pane by pane from `first_pane`; read what a fit and a gate need at any time."""

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
        self.day_panes: list[PaneCells] = []
        """The labelled cells of the fit buckets in the panes of the last pane's UTC day."""
        self.audited_panes: deque[PaneCells] = deque(maxlen=panes_of(TRAILING_MS, pane_ms))
        """Those of the audit and certificate buckets."""
        self.gate_panes: deque[PaneCells] = deque(maxlen=panes_of(config.refit.gate_window_ms, pane_ms))
        """All of the gate's buckets, also those without labelled rows."""
        self.window_panes = panes_of(config.drift.psi_window_ms, pane_ms)
        self.windows: deque[PastWindow] = deque(maxlen=PSI_WINDOWS)
        """Oldest first."""
        self._window_parts: list[ScoredCells] = []
        self._window_outcomes: dict[tuple[str, ...], list[PaneCells]] = {}
        self._window_labelled = 0
        self._coverage = CoverageState()
        self._derived = time_attributes(config, derived_names(config))
        self._pane_ms = pane_ms

    @classmethod
    def restored(cls, first_pane: int, sums: EvidenceSums, config: Config) -> Evidence:
        """Goes on behind the pane of `sums`. What is read of it pane by pane is whole, and the same as that of evidence
        which began at `first_pane`, when it has advanced by `Config.kept_panes().refit` panes."""
        made = cls(first_pane, config)
        made.next_pane, made.cells_sha256 = sums.last_pane + 1, sums.cells_sha256
        made.fit_rows, made.fit_positives, made._coverage = sums.fit_rows, sums.fit_positives, sums.coverage
        made.counts = made.counts.restored_from(sums.counts)
        return made

    def sums(self) -> EvidenceSums:
        """What the panes so far came to, without what is kept of each."""
        return EvidenceSums(
            self.last_pane, self.cells_sha256, self.fit_rows, self.fit_positives, self._coverage, self.counts.state()
        )

    def fit_cells(self) -> FitCells:
        """As `PastPanes`."""
        return self.counts.cells()

    @property
    def last_pane(self) -> int:
        return self.next_pane - 1

    @property
    def last_day(self) -> int:
        """UTC day in which the last pane begins, in days since 1970-01-01."""
        return self.day_of(self.last_pane)

    @property
    def day_is_over(self) -> bool:
        """Whether the last pane is the last that begins in its day."""
        return self.day_of(self.next_pane) > self.last_day

    def day_of(self, pane: int) -> int:
        """UTC day in which the pane begins."""
        return pane * self._pane_ms // DAY_MS

    def advance(self, pane: int, blob: bytes) -> None:
        """Takes the next pane's packed matured cells. Raises ValueError out of order, StateError for damaged bytes."""
        self.advance_cells(pane, MaturedCells.unpack(blob), chained(self.cells_sha256, blob))

    def advance_cells(self, pane: int, cells: MaturedCells, cells_sha256: str) -> None:
        """The same with the pane's cells, and the chain hash up to it. Raises ValueError out of order."""
        if pane != self.next_pane:
            raise ValueError(f"evidence is at pane {self.next_pane}; pane {pane} cannot be added now")
        labelled, winners = int(cells.labelled.sum()), int(cells.labelled.sum() + cells.unlabelled.sum())
        verdict = judge(self._coverage, pane, labelled, winners - labelled)
        self._coverage = verdict.state
        derived = () if self._derived is None else self._derived.of_pane(pane)
        fit, labelled_cells = IS_FIT[cells.unit_bucket], cells.labelled > 0
        self.counts.advance(chosen_rows(cells, fit), verdict.complete, derived)
        if verdict.complete:
            self.fit_rows += int(cells.labelled[fit].sum())
            self.fit_positives += int(cells.positives[fit].sum())
        if self.day_of(pane) != self.day_of(pane - 1):
            self.day_panes = []
        for panes, chosen in (
            (self.day_panes, fit & labelled_cells),
            (self.audited_panes, IS_AUDITED[cells.unit_bucket] & labelled_cells),
            (self.gate_panes, IS_GATE[cells.unit_bucket]),
        ):
            panes.append(PaneCells(pane, verdict.complete, winners, chosen_rows(cells, chosen)))
        self._window_parts.append(ScoredCells(cells.signature, cells.grid_bin, cells.labelled + cells.unlabelled))
        self._window_labelled += labelled
        if verdict.complete:
            self._window_outcomes.setdefault(derived, []).append(PaneCells(pane, True, winners, cells))
        if (pane + 1 - self.first_pane) % self.window_panes == 0:
            if len(self._window_parts) == self.window_panes:  # else a checkpoint was in the middle of it
                outcomes = tuple(_together(panes) for panes in self._window_outcomes.values())
                self.windows.append(PastWindow(ScoredCells.merge(self._window_parts), self._window_labelled, outcomes))
            self._window_parts, self._window_labelled, self._window_outcomes = [], 0, {}
        self.cells_sha256 = cells_sha256
        self.next_pane = pane + 1


def chosen_rows(cells: MaturedCells, chosen: NDArray[np.bool_]) -> MaturedCells:
    """The chosen (k,) of the cells."""
    return MaturedCells(
        cells.unit_bucket[chosen],
        cells.signature[chosen],
        cells.grid_bin[chosen],
        cells.labelled[chosen],
        cells.positives[chosen],
        cells.unlabelled[chosen],
    )


def _together(panes: Sequence[PaneCells]) -> PaneCells:
    """The cells of several panes as those of the first, without their unit buckets."""
    parts = [replace(p.cells, unit_bucket=np.zeros_like(p.cells.unit_bucket)) for p in panes]
    return PaneCells(panes[0].pane, True, sum(p.winners for p in panes), MaturedCells.merge(parts))
