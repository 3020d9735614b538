"""How long the residual step of one pane takes: 561 cells x 8 shifts, two budgets, by the number of labelled events."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.drift_traffic import SERVED
from stream_calib.calibration.grid import N_BINS, locate
from stream_calib.drift.residual import ResidualState, ResidualSums, WatchedCells, advance
from stream_calib.drift.residual_evidence import pane_evidence

_FIRST, _SECOND, _INTERVALS = 10, 40, 10
FAMILIES = (1, _FIRST, _SECOND, _INTERVALS, _FIRST * _INTERVALS, _FIRST * _SECOND)
"""Everything, two attributes, score intervals, attribute x interval, the intersection of the attributes."""
CELLS = sum(FAMILIES)
MOST_DRAWN = 1_000_000
"""Larger panes are this one with its counts multiplied: all its pairs are there already."""
_REPEATS = 9


@dataclass(frozen=True, slots=True)
class PaneCost:
    events: int
    pairs: int
    """(cell, served probability) with events."""
    seconds: float

    @property
    def events_per_second(self) -> float:
        return self.events / self.seconds


def watched_cells(events: int) -> WatchedCells:
    family = np.repeat(np.arange(len(FAMILIES)), FAMILIES)
    names = [f"cell={i}" for i in range(CELLS)]
    return WatchedCells(names, family, np.full(CELLS, 0.005), np.full(len(FAMILIES), 1.5), float(events))


def pane_sums(events: int, rng: np.random.Generator) -> ResidualSums:
    """Of a pane of `events` labelled events, each of which is in one cell of every family."""
    drawn = min(events, MOST_DRAWN)
    grid_bin = locate(rng.beta(2.0, 8.0, drawn))[0].astype(np.intp)
    first, second = rng.integers(0, _FIRST, drawn), rng.integers(0, _SECOND, drawn)
    interval = np.minimum(grid_bin * _INTERVALS // N_BINS, _INTERVALS - 1)
    inside = (0, first, second, interval, first * _INTERVALS + interval, first * _SECOND + second)
    starts = np.cumsum((0, *FAMILIES[:-1]))
    place = np.concatenate([(start + cell) * N_BINS + grid_bin for start, cell in zip(starts, inside, strict=True)])
    positive = np.tile(rng.random(drawn) < SERVED[grid_bin], len(FAMILIES))
    labelled = np.bincount(place, minlength=CELLS * N_BINS)
    positives = np.bincount(place[positive], minlength=CELLS * N_BINS)
    pair: NDArray[np.intp] = np.flatnonzero(labelled)
    times = events // drawn
    return ResidualSums(pair // N_BINS, SERVED[pair % N_BINS], labelled[pair] * times, positives[pair] * times)


def pane_cost(events: int, rng: np.random.Generator) -> PaneCost:
    """The fastest of some runs: evidence, and both budgets' detectors."""
    watched, sums, state = watched_cells(events), pane_sums(events, rng), ResidualState()
    state, _ = advance(state, watched, pane_evidence(watched, sums), 720.0)
    took = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        evidence = pane_evidence(watched, sums)
        for budget_panes in (720.0, 8760.0):
            advance(state, watched, evidence, budget_panes)
        took.append(time.perf_counter() - started)
    return PaneCost(events, len(sums.cell), min(took))
