"""Small histories of cells for tests: hourly panes from 2013-06-01, of carriers and origins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stream_calib.backtest.history import CellHistory, PaneBlobs
from stream_calib.calibration.grid import CENTRE_LOG_ODDS, N_BINS
from stream_calib.config import Config
from stream_calib.config_identity import configured_keys, semantic_hash
from stream_calib.events.identity import signature_hash
from stream_calib.windows.cells import MaturedCells, ScoredCells

HOUR_MS = 3_600_000
FIRST_PANE = 1_370_044_800_000 // HOUR_MS
"""2013-06-01 00:00 UTC."""
SIGNATURES = (("UA", "EWR"), ("UA", "JFK"), ("B6", "JFK"), ("DL", "LGA"))


def configuration(**windows: Any) -> Config:
    """Two attributes, a horizon of a day."""
    return Config.model_validate(
        {
            "model": {"name": "flights"},
            "scores": {
                "attributes": {"carrier": "carrier", "origin": "origin"},
                "intersections": [["carrier", "origin"]],
                "time": {"path": "ts"},
            },
            "labels": {"time": {"path": "ts"}},
            "windows": {"horizon": "24h", "shards": 1, "idle_timeout": "off", **windows},
        }
    )


def history_of(
    matured: Sequence[MaturedCells], signatures: Sequence[tuple[str, ...]] = SIGNATURES, open_panes: int = 0
) -> CellHistory:
    """Of these panes, whose scored cells are those of the matured ones; the last `open_panes` have no final labels."""
    config = configuration()
    panes = []
    for i, cells in enumerate(matured):
        scored = ScoredCells.merge([ScoredCells(cells.signature, cells.grid_bin, cells.labelled + cells.unlabelled)])
        panes.append(PaneBlobs(scored.pack(), None if i >= len(matured) - open_panes else cells.pack()))
    dictionary: Mapping[int, tuple[str, ...]] = {signature_hash(values): values for values in signatures}
    (key,) = configured_keys(config)
    generation = semantic_hash(config)
    return CellHistory(key, generation, HOUR_MS, FIRST_PANE, panes, dictionary, "cold", "cells of a test", {"rows": 1})


def drawn_history(
    panes: int,
    events: int,
    seed: int,
    *,
    coverage: float = 0.9,
    shift: Callable[[int], float] = lambda pane: 0.0,
    open_panes: int = 0,
) -> CellHistory:
    """Events of all signatures alike; true log-odds = .8 x raw + .3 + shift(pane from 0 on)."""
    drawn = np.random.default_rng(seed)
    hashes = np.array([signature_hash(values) for values in SIGNATURES], dtype=np.uint64)
    matured = []
    for pane in range(panes):
        grid_bin = np.clip(drawn.normal(170, 25, events), 0, N_BINS - 1).astype(np.uint16)
        p = 1 / (1 + np.exp(-(0.8 * CENTRE_LOG_ODDS[grid_bin] + 0.3 + shift(pane))))
        label = (drawn.random(events) < p).astype(np.int8)
        label[drawn.random(events) >= coverage] = -1
        bucket = drawn.integers(0, 20, events).astype(np.uint8)
        signature = hashes[drawn.integers(0, len(hashes), events)]
        matured.append(MaturedCells.count(bucket, signature, grid_bin, label))
    return history_of(matured, open_panes=open_panes)
