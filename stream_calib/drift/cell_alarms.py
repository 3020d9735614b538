"""What the detectors of one budget make of a pane: which cells alarm, since when, and which of that is news."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stream_calib.drift.cell_history import CellHistory, CellView
from stream_calib.drift.open_cells import Alarmed, OpenCells, moved
from stream_calib.drift.residual import PaneEvidence, ResidualAlarm, ResidualState, WatchedCells, advance, log_mean

MOST_SHOWN = 5
"""Cells in an alert's evidence."""


@dataclass(frozen=True, slots=True)
class AlarmedCell:
    """An alarm and what it is of."""

    alarm: ResidualAlarm
    view: CellView


@dataclass(frozen=True, slots=True)
class CellAlarms:
    """After a pane."""

    detectors: ResidualState
    open_cells: OpenCells
    alarmed: frozenset[str]
    """Cells that alarm in the pane."""
    news: Sequence[AlarmedCell]
    """Those of them that people must hear of, by evidence, the MOST_SHOWN first ones."""


def cell_alarms(
    detectors: ResidualState,
    open_cells: OpenCells,
    watched: WatchedCells,
    version: str,
    evidence: PaneEvidence,
    history: CellHistory,
    budget_panes: float,
) -> CellAlarms:
    """`detectors`, `open_cells`: before the pane; `history`: with it. `version`: the snapshot that is current there.

    At most one false alarm is expected in `budget_panes` panes.
    """
    after, alarms = advance(detectors, watched, evidence, budget_panes)
    alarmed = [AlarmedCell(alarm, history.of(alarm.cell, alarm.shift, watched)) for alarm in alarms]
    found = [Alarmed(a.alarm.name, a.view.since_pane, int(a.view.own.labelled[0])) for a in alarmed]
    open_after, news = OpenCells(), set[str]()
    if found or open_cells.cells:
        open_after, news = moved(open_cells, found, version, watched.names, evidence.labelled, log_mean(after.rows))
    told = sorted((a for a in alarmed if a.alarm.name in news), key=lambda a: (-a.alarm.log_evidence, a.alarm.name))
    return CellAlarms(after, open_after, frozenset(alarm.name for alarm in alarms), told[:MOST_SHOWN])
