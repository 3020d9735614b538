"""Makes the picture of docs/drift.md, what two detectors do: `python docs/pictures/detector_picture.py [FILE]`."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from svg_page import Panel, svg_page

from stream_calib.calibration.grid import CENTRE_LOG_ODDS, locate
from stream_calib.drift.residual import ResidualState, ResidualSums, WatchedCells, advance, log_mean, log_threshold
from stream_calib.drift.residual_evidence import pane_evidence
from stream_calib.pages.svg import Scale, element, polyline

_PANES, _CHANGES_AT, _PER_PANE, _SHIFT = 90, 40, 200, 0.05
_WATCHED = WatchedCells(["as served", "changed"], np.zeros(2, np.intp), np.zeros(2), np.ones(1), 10_000.0)
_REFIT_PANES, _PAGE_PANES = 100.0, 1_217.0


def evidence_by_pane(budget_panes: float) -> tuple[NDArray[np.float64], list[tuple[int, int]]]:
    """(panes, 2) log10 of mean M before it starts again, and pane and cell of each alarm."""
    rng = np.random.default_rng(11)
    state, rows, alarms = ResidualState(), [], []
    limit = log_threshold(_WATCHED, budget_panes)
    for pane in range(_PANES):
        served = expit(CENTRE_LOG_ODDS[locate(rng.beta(2.0, 8.0, 2 * _PER_PANE))[0]])
        cell = np.repeat([0, 1], _PER_PANE)
        truth = served + _SHIFT * (cell == 1) * (pane >= _CHANGES_AT)
        positive = (rng.random(len(truth)) < truth).astype(np.int64)
        sums = ResidualSums(cell, served, np.ones(len(cell), np.int64), positive)
        state, new = advance(state, _WATCHED, pane_evidence(_WATCHED, sums), budget_panes)
        row = log_mean(state.rows)
        for alarm in new:
            row[alarm.cell] = limit + alarm.log_evidence
            alarms.append((pane, alarm.cell))
        rows.append(row)
    return np.array(rows) / math.log(10), alarms


def detector_picture() -> str:
    panel = Panel(Scale(0, _PANES, 60, 700), Scale(0, 9, 360, 46))
    out = panel.frame(
        "Evidence that outcomes are not what is served: mean M",
        f"panes of {_PER_PANE} labelled events of each group",
        [(float(pane), str(pane)) for pane in range(0, _PANES + 1, 10)],
        [
            (0.0, "1"),
            (2.0, "100"),
            (4.0, "10\N{SUPERSCRIPT FOUR}"),
            (6.0, "10\N{SUPERSCRIPT SIX}"),
            (8.0, "10\N{SUPERSCRIPT EIGHT}"),
        ],
    )
    limits = (
        (_REFIT_PANES, "a refit: one false alarm in a million events"),
        (_PAGE_PANES, "a page: one in twelve million"),
    )
    for budget, text in limits:
        y = panel.y(log_threshold(_WATCHED, budget) / math.log(10))
        out.append(element("line", "edge", x1=panel.x.start, x2=panel.x.stop, y1=y, y2=y))
        out.append(element("text", "tick", x=panel.x.start + 8, y=y - 6, text=text))
    changes = panel.x(_CHANGES_AT)
    out.append(element("line", "perfect", x1=changes, x2=changes, y1=panel.y.start, y2=panel.y.stop))
    out.append(element("text", "tick", x=changes + 6, y=panel.y(0.25), text="the change"))
    rows, alarms = evidence_by_pane(_REFIT_PANES)
    for cell, css in ((0, "calibrated"), (1, "raw")):
        out.append(
            polyline([(panel.x(i + 1), panel.y(max(v, 0.0))) for i, v in enumerate(rows[:, cell])], f"line {css}")
        )
    out += [panel.dot(pane + 1, float(rows[pane, cell]), "raw", "alarm") for pane, cell in alarms]
    for line, (css, text) in enumerate(
        (("raw", "probability 0.05 too low from there on"), ("calibrated", "as served"))
    ):
        out.append(element("text", f"end {css}", x=panel.x.stop - 8, y=panel.y(1.2) + 20 * line, text=text))
    return svg_page(740, 416, "Evidence of the residual detectors of two groups, one of which changes", out)


if __name__ == "__main__":
    IMAGE = Path(__file__).parents[1] / "images/drift-detectors.svg"
    Path(sys.argv[1] if len(sys.argv) > 1 else IMAGE).write_text(detector_picture(), encoding="utf-8")
