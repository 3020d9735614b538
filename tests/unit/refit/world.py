"""A small made-up deployment over MemoryState, with the closer's part played by hand."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from stream_calib.calibration.grid import EDGE_LOG_ODDS, locate
from stream_calib.calibration.maps.base_map import BaseMap
from stream_calib.calibration.maps.parts import MapParts
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.config import Config
from stream_calib.events.contracts import ModelKey
from stream_calib.events.identity import signature_hash
from stream_calib.refit.decider import Decider
from stream_calib.refit.gate_evidence import JudgedMap
from stream_calib.refit.worker import Refitter
from stream_calib.snapshot.changes import REFIT_LEASE
from stream_calib.snapshot.decision_log import chain
from stream_calib.snapshot.log_reader import LogReader
from stream_calib.snapshot.store import SnapshotStore
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.pane_record import chained
from stream_calib.windows.state_store import Commit

KEY = ModelKey("m", "1")
GENERATION = "g1"
FIRST_PANE = 480_000
REGIONS = ["north", "south", "west"]
SIGNATURES = {signature_hash((r,)): (r,) for r in REGIONS}
IDENTITY = JudgedMap(ServedMap(MapParts(BaseMap(EDGE_LOG_ODDS, expit(EDGE_LOG_ODDS), 1e-6, 0.0))))
"""Serves every score as it is."""


def config(**refit: object) -> Config:
    """Panes of 1 h, horizon 2 h, small minima."""
    return Config.model_validate(
        {
            "model": {"name": KEY.model, "version": KEY.version},
            "scores": {"attributes": {"region": "r"}},
            "windows": {"horizon": "2h"},
            "refit": {"min_rows": 600, "min_positives": 20, "min_new_labels": 100, "cooldown": "2h"} | refit,
        }
    )


class Rows:
    """Winners of one pane, one entry a row."""

    def __init__(
        self, rng: np.random.Generator, n: int, *, low: float = 0.05, high: float = 0.95, west_odds: float = 1.0
    ) -> None:
        """Raw scores are three times too large in odds for region south, by `west_odds` too small for west, and right
        elsewhere."""
        self.score: NDArray[np.float64] = rng.uniform(low, high, n)
        self.region = rng.integers(0, len(REGIONS), n)
        factor = np.array([1.0, 1 / 3.0, west_odds])
        odds = self.score / (1 - self.score) * factor[self.region]
        self.label = (rng.random(n) < odds / (1 + odds)).astype(np.int8)
        self.bucket = rng.integers(0, 20, n).astype(np.uint8)

    def cells(self) -> tuple[ScoredCells, MaturedCells]:
        hashes = np.array(list(SIGNATURES), dtype=np.uint64)[self.region]
        grid_bin, _ = locate(self.score)
        return ScoredCells.count(hashes, grid_bin), MaturedCells.count(self.bucket, hashes, grid_bin, self.label)


class World:
    """`run` plays source, closer and refit in lock-step."""

    def __init__(self, configuration: Config, *, rows_a_pane: int = 50, seed: int = 1) -> None:
        self.config = configuration
        self.rng = np.random.default_rng(seed)
        self.rows_a_pane = rows_a_pane
        self.now_ms = 1_000
        self.state = MemoryState(lambda: self.now_ms)
        self.state.put_signatures(SIGNATURES, 0)
        self.state.commit(Commit(fields={"first_pane": str(FIRST_PANE), "decided": str(FIRST_PANE - 1)}))
        self.store = SnapshotStore(self.state, KEY, GENERATION, configuration.windows.pane_ms, self.clock)
        token = self.state.acquire_lease(REFIT_LEASE, "worker", 10**9)
        assert token is not None
        self.token = token
        self.refitter = Refitter(self.state, self.store, KEY, configuration)
        self.reader = LogReader(self.state)
        self.decider = self.new_decider()
        self.scored: dict[int, ScoredCells] = {}
        self.matured: dict[int, MaturedCells] = {}
        self.chains: dict[int, str] = {}
        self.low, self.high = 0.05, 0.95
        self.west_odds = 1.0

    def clock(self) -> int:
        self.now_ms += 1
        return self.now_ms

    def new_decider(self) -> Decider:
        reads = self.state.signatures, self.store.reference, self.store.load
        return Decider(KEY, GENERATION, FIRST_PANE, self.config, *reads)

    def add_pane(self) -> int:
        """One more pane, closed and matured."""
        pane = FIRST_PANE + len(self.matured)
        rows = Rows(self.rng, self.rows_a_pane, low=self.low, high=self.high, west_odds=self.west_odds)
        self.scored[pane], self.matured[pane] = rows.cells()
        blob = self.matured[pane].pack()
        self.chains[pane] = chained(self.chains.get(pane - 1, ""), blob)
        self.state.commit(Commit(blobs={f"matured:{pane}": blob}))
        return pane

    def decide(self) -> bool:
        """Decides the next pane, if it can be."""
        fields, log = self.reader.read(["decided", "detector"])
        pane = int(fields["decided"] or 0) + 1
        if log.open_request is not None or pane + self.decider.horizon_panes not in self.scored:
            return False
        for closed in self.decider.missing(pane):
            self.decider.push(closed, self.scored[closed])
        decision = self.decider.decide(pane, fields["detector"], log, self.matured[pane], self.chains[pane])
        new = {"decided": str(pane), "detector": decision.detector, "open_request": decision.open_request}
        if decision.decisions:
            new |= {"tip": str(chain(log.tip, decision.decisions)), "log_length": str(log.length + 1)}
        appends = {"decisions": decision.decisions, "outbox": decision.outbox}
        expect = {"decided": fields["decided"], "tip": fields["tip"]}
        assert self.state.commit(Commit(expect, new, appends))
        return True

    def run(self, panes: int, *, refit: bool = True) -> None:
        for _ in range(panes):
            self.add_pane()
            while self.decide() or (refit and self.refitter.run_once(self.token) is not None):
                pass
