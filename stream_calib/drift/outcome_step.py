"""The step's part on outcomes: the residual detectors of both budgets, their cells in alarm, and what is said of them.

Both budgets see the same evidence; an alarm of one starts its own cell again and nothing else. The state goes on when
another snapshot is published: each pane is judged by the f, epsilon and phi of the snapshot that was current then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stream_calib.drift.alert_changes import AlertChange
from stream_calib.drift.cell_alarms import AlarmedCell, CellAlarms, cell_alarms
from stream_calib.drift.cell_history import EVERYTHING, CellHistory, advance_history
from stream_calib.drift.diagnosis import CommonShift, most_uneven
from stream_calib.drift.open_cells import OpenCells
from stream_calib.drift.residual import PaneEvidence, ResidualState, ResidualSums, WatchedCells
from stream_calib.drift.residual_evidence import pane_evidence
from stream_calib.drift.served_words import WAS_SERVED, WHAT_IS_SERVED


@dataclass(frozen=True, slots=True)
class PaneOutcomes:
    """Of a complete pane, by the detectors of the snapshot that is current there."""

    version: str
    watched: WatchedCells
    sums: ResidualSums
    known_evidence: PaneEvidence | None = None
    """`pane_evidence` of these, where somebody has made it already; likewise `pane_measures`:"""
    known_measures: NDArray[np.int64] | None = None

    @property
    def evidence(self) -> PaneEvidence:
        return pane_evidence(self.watched, self.sums) if self.known_evidence is None else self.known_evidence


@dataclass(frozen=True, slots=True)
class OutcomeState:
    """Carried from pane to pane."""

    refit: ResidualState = field(default_factory=ResidualState)
    page: ResidualState = field(default_factory=ResidualState)
    history: CellHistory = field(default_factory=CellHistory)
    open_refit: OpenCells = field(default_factory=OpenCells)
    open_page: OpenCells = field(default_factory=OpenCells)
    paged: frozenset[str] = frozenset()
    """Cells that alarmed within the budget of pages in the last pane: their histories begin anew."""

    @property
    def is_open(self) -> bool:
        """Whether outcomes are in alarm."""
        return bool(self.open_refit.cells or self.open_page.cells)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "refit": self.refit.to_text(),
            "page": self.page.to_text(),
            "history": self.history.to_json(),
            "open_refit": self.open_refit.to_json(),
            "open_page": self.open_page.to_json(),
            "paged": sorted(self.paged),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> OutcomeState:
        """The inverse of `to_json`. Raises StateFormatError where detectors or histories cannot be read."""
        refit = ResidualState.from_text(document["refit"])
        return cls(
            refit,
            ResidualState.from_text(document["page"]),
            CellHistory.from_json(refit.names, document["history"]),
            OpenCells.from_json(document["open_refit"]),
            OpenCells.from_json(document["open_page"]),
            frozenset(document["paged"]),
        )


@dataclass(frozen=True, slots=True)
class OutcomeResult:
    state: OutcomeState
    alerts: tuple[AlertChange, ...]
    asks: bool
    """Whether a cell alarms within the budget of refits."""


def outcome_step(
    state: OutcomeState, pane: int, outcomes: PaneOutcomes | None, refit_panes: float, page_panes: float
) -> OutcomeResult:
    """Judges the outcomes of one pane; None: nothing is known of them, and nothing moves.

    `refit_panes`, `page_panes`: at most one false alarm is expected in so many panes.
    """
    if outcomes is None:
        return OutcomeResult(state, (), False)
    watched, version = outcomes.watched, outcomes.version
    evidence = outcomes.evidence
    # What a refit has mended must show under what it published: evidence of before says nothing of that.
    restarted = {cell.name for cell in state.open_refit.cells if not cell.changed and cell.version != version}
    restarted |= state.paged
    history = advance_history(state.history, watched, outcomes.sums, evidence, pane, restarted, outcomes.known_measures)
    refit, page = (
        cell_alarms(detectors, open_cells, watched, version, evidence, history, panes)
        for detectors, open_cells, panes in (
            (state.refit, state.open_refit, refit_panes),
            (state.page, state.open_page, page_panes),
        )
    )
    changes = (_change("residual", state.open_refit, refit), _change("residual_page", state.open_page, page))
    after = OutcomeState(refit.detectors, page.detectors, history, refit.open_cells, page.open_cells, page.alarmed)
    return OutcomeResult(after, tuple(change for change in changes if change is not None), bool(refit.alarmed))


def _change(kind: Literal["residual", "residual_page"], before: OpenCells, found: CellAlarms) -> AlertChange | None:
    after = found.open_cells
    if after.since_pane is None:
        if before.since_pane is None:
            return None
        text = f"outcomes are again {WHAT_IS_SERVED}, in every cell that was in alarm"
        return AlertChange(kind, "close", before.since_pane, text)
    if not found.news:
        return None
    first = found.news[0]
    shift = most_uneven(first.view.partitions)
    return AlertChange(
        kind,
        "open" if before.since_pane is None else "update",
        after.since_pane,
        _said(first, shift),
        {
            "cells": {alarmed.alarm.name: _figures(alarmed) for alarmed in found.news},
            "open_cells": len(after.cells),
            "diagnosis": shift.kind,
        }
        | _shift_figures(shift),
    )


def _figures(alarmed: AlarmedCell) -> dict[str, Any]:
    sums = alarmed.view.own
    n, positives, expected = int(sums.labelled[0]), int(sums.positives[0]), float(sums.expected[0])
    return {
        "since_pane": alarmed.view.since_pane,
        "events": n,
        "served": round(expected / n, 6),
        "outcome": round(positives / n, 6),
        "events_off": round(positives - expected, 3),
        "log_odds": alarmed.alarm.shift,
    }


def _shift_figures(shift: CommonShift) -> dict[str, Any]:
    """Those that are known."""
    figures = {"common_shift": shift.shift, "common_shift_error": shift.error, "p_value": shift.p_value}
    return {name: round(value, 6) for name, value in figures.items() if not math.isnan(value)}


def _said(first: AlarmedCell, shift: CommonShift) -> str:
    sums, name = first.view.own, first.alarm.name
    n = int(sums.labelled[0])
    outcome, served = int(sums.positives[0]) / n, float(sums.expected[0]) / n
    what = f"outcomes of {name}: {outcome:.3f} where {served:.3f} {WAS_SERVED}, in {n} labelled events"
    if shift.kind == "prior_shift":
        return f"{what}; all moved by one shift of {shift.shift:+.2f} in log-odds: the base rate changed"
    if shift.kind == "concept_drift":
        if name == EVERYTHING:
            return f"{what}, and not by one shift for all groups and heights: what a score means has changed"
        return f"{what}; unlike the rest: what a score means has changed there"
    return f"{what}; too few labels yet to tell a change of the base rate from one of this cell alone"
