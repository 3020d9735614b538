"""A small made-up history of cells: panes of an hour, outcomes that are off in one region, and a change on the way."""

from __future__ import annotations

import numpy as np

from stream_calib.backtest.history import CellHistory, PaneBlobs
from tests.unit.refit.world import FIRST_PANE, GENERATION, KEY, SIGNATURES, Rows

HORIZON_PANES = 2


def history(panes: int, *, rows_a_pane: int = 50, seed: int = 1, changed_from: int | None = None) -> CellHistory:
    """`changed_from`: pane, counted from 0, from which outcomes of the region west are seven times as likely in
    odds."""
    rng = np.random.default_rng(seed)
    made = []
    for pane in range(panes):
        changed = changed_from is not None and pane >= changed_from
        scored, matured = Rows(rng, rows_a_pane, west_odds=7.0 if changed else 1.0).cells()
        made.append(PaneBlobs(scored.pack(), matured.pack() if pane < panes - HORIZON_PANES else None))
    return CellHistory(
        key=KEY,
        generation=GENERATION,
        pane_ms=3_600_000,
        first_pane=FIRST_PANE,
        panes=made,
        signatures=SIGNATURES,
        start="exact",
        source="made up",
        counts={"accepted": panes * rows_a_pane},
    )
