"""Label selection: do as many scores get their label as usual, in every group and score band?

Labels that go missing everywhere are an outage (coverage.py). Where they go missing for some scores only, what is left
is no fair sample, and nothing of it shows in the outcomes. The same e-detectors watch it (residual.py): the event is a
score of a matured pane, its "label" whether it has one, and what is "served" is the cell's share in the reference. That
is the end of the cell's delay curve: a matured pane gets no more labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stream_calib.drift.alert_changes import AlertChange
from stream_calib.drift.cell_alarms import cell_alarms
from stream_calib.drift.cell_history import CellHistory, CellView, advance_history
from stream_calib.drift.open_cells import OpenCells
from stream_calib.drift.outcome_step import PaneOutcomes
from stream_calib.drift.residual import ResidualState

_RELATIVE, _ABSOLUTE = 0.1, 0.01


@dataclass(frozen=True, slots=True)
class SelectionState:
    """Carried from pane to pane."""

    detectors: ResidualState = field(default_factory=ResidualState)
    history: CellHistory = field(default_factory=CellHistory)
    open_cells: OpenCells = field(default_factory=OpenCells)
    alarmed: frozenset[str] = frozenset()
    """Cells that alarmed in the last pane: their histories begin anew."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "detectors": self.detectors.to_text(),
            "history": self.history.to_json(),
            "open_cells": self.open_cells.to_json(),
            "alarmed": sorted(self.alarmed),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SelectionState:
        """The inverse of `to_json`. Raises StateFormatError where it cannot be read."""
        detectors = ResidualState.from_text(document["detectors"])
        return cls(
            detectors,
            CellHistory.from_json(detectors.names, document["history"]),
            OpenCells.from_json(document["open_cells"]),
            frozenset(document["alarmed"]),
        )


def tolerated(coverage: NDArray[np.float64]) -> NDArray[np.float64]:
    """(C,) epsilon of usual shares (C,): a tenth of the share, at least .01. Less is no selection that would matter."""
    return np.maximum(_RELATIVE * coverage, _ABSOLUTE)


def selection_step(
    state: SelectionState, pane: int, scores: PaneOutcomes | None, budget_panes: float
) -> tuple[SelectionState, AlertChange | None]:
    """Judges which scores of one pane have a label; None: nothing is known of it, and nothing moves."""
    if scores is None:
        return state, None
    watched = scores.watched
    evidence = scores.evidence
    history = advance_history(state.history, watched, scores.sums, evidence, pane, state.alarmed, scores.known_measures)
    found = cell_alarms(state.detectors, state.open_cells, watched, scores.version, evidence, history, budget_panes)
    open_cells = found.open_cells
    after = SelectionState(found.detectors, history, open_cells, found.alarmed)
    if open_cells.since_pane is None:
        since = state.open_cells.since_pane
        text = "every group and score band gets its labels as usual again"
        return after, None if since is None else AlertChange("label_selection", "close", since, text)
    if not found.news:
        return after, None
    figures = {alarmed.alarm.name: _figures(alarmed.view) for alarmed in found.news}
    name, first = next(iter(figures.items()))
    text = (
        f"{first['share']:.1%} of {first['scores']} scores of {name} have a label, {first['usual_share']:.1%} is usual:"
        " the labels that there are may be no fair sample"
    )
    change: Literal["open", "update"] = "open" if state.open_cells.since_pane is None else "update"
    said = {"cells": figures, "open_cells": len(open_cells.cells)}
    return after, AlertChange("label_selection", change, open_cells.since_pane, text, said)


def _figures(view: CellView) -> dict[str, Any]:
    scores = int(view.own.labelled[0])
    return {
        "since_pane": view.since_pane,
        "scores": scores,
        "share": round(int(view.own.positives[0]) / scores, 6),
        "usual_share": round(float(view.own.expected[0]) / scores, 6),
    }
