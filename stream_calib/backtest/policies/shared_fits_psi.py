"""The PSI window of policies that share references: each sum is made once, and so are its figures."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stream_calib.backtest.policies.bounded import make_room
from stream_calib.backtest.policies.shared_fits_panes import SharedPanes
from stream_calib.config import Config
from stream_calib.drift.psi import PsiFigures, PsiLook, PsiReference, looked_at, psi_figures, psi_of, shares
from stream_calib.drift.psi_alert import PsiFacts, PsiState, PsiStep, psi_step
from stream_calib.drift.psi_window import PsiWindow
from stream_calib.refit.decider import psi_window

_MOST_KEPT = 40_000
"""Sums of windows, and their figures, some kilobytes each."""


@dataclass(slots=True)
class PsiSeen:
    """By reference (`id`; whoever fills this keeps the references) and last pane of the window."""

    counts: dict[tuple[int, int], NDArray[np.int64]] = field(default_factory=dict)
    figures: dict[tuple[int, int], PsiFigures] = field(default_factory=dict)
    steps: dict[tuple[int, int, PsiState, float, float], PsiStep] = field(default_factory=dict)
    """Further by what was in alarm before, threshold and budget."""
    of_all: dict[tuple[int, int], float] = field(default_factory=dict)
    """PSI of all scores; nan where there is none to report."""

    def step(self, state: PsiState, facts: PsiFacts | None, threshold: float, budget_panes: float) -> PsiStep:
        """As `psi_step`."""
        if facts is None:
            return psi_step(state, facts, threshold, budget_panes)
        key = id(facts.reference), facts.newest, state, threshold, budget_panes
        if key not in self.steps:
            make_room(self.steps, _MOST_KEPT)
            self.steps[key] = psi_step(state, facts, threshold, budget_panes)
        return self.steps[key]

    def psi_of_all(self, facts: PsiFacts) -> float:
        """Of the window that the facts are of."""
        key = id(facts.reference), facts.newest
        if key not in self.of_all:
            make_room(self.of_all, _MOST_KEPT)
            self.of_all[key] = psi_of_all(facts)
        return self.of_all[key]


class SharedPsiWindow(PsiWindow):
    """A PsiWindow that is summed only where no other policy has been."""

    def __init__(self, panes: SharedPanes, config: Config, seen: PsiSeen) -> None:
        self._summed = psi_window(config, panes.signatures)
        self.panes = self._summed.panes
        self.looked = self._look
        self._cells, self._seen = panes, seen
        self._pushed: range = range(0)
        self._used: PsiReference | None = None

    @property
    def newest(self) -> int | None:
        return self._pushed[-1] if self._pushed else None

    @property
    def oldest(self) -> int | None:
        return self._pushed[0] if self._pushed else None

    @property
    def newest_rows(self) -> int:
        return self._cells.scored_rows(self._pushed[-1]) if self._pushed else 0

    @property
    def counts(self) -> NDArray[np.int64] | None:
        if self._used is None:
            return None
        key = id(self._used), self._pushed[-1] if self._pushed else -1
        known = self._seen.counts
        if key not in known:
            make_room(known, _MOST_KEPT)
            counts = self._sum(self._used)
            counts.flags.writeable = False
            known[key] = counts
        return known[key]

    def clear(self) -> None:
        self._pushed = range(0)

    def push(
        self, pane: int, signature: NDArray[np.uint64], grid_bin: NDArray[np.uint16], n: NDArray[np.int64]
    ) -> None:
        first = self._pushed[0] if self._pushed else pane
        if self._pushed and pane != self._pushed[-1] + 1:
            raise ValueError(f"PSI window: pane {pane} pushed after pane {self._pushed[-1]}; panes must follow")
        self._pushed = range(max(first, pane - self.panes + 1), pane + 1)

    def use(self, reference: PsiReference | None) -> None:
        self._used = reference

    def _sum(self, reference: PsiReference) -> NDArray[np.int64]:
        summed, wanted = self._summed, self._pushed
        if summed.newest is None or summed.newest > wanted[-1] or summed.newest < wanted[0] - 1:
            summed.clear()
        begin = wanted[0] if summed.newest is None else summed.newest + 1
        summed.use(reference)
        for pane in range(begin, wanted[-1] + 1):
            cells = self._cells.scored(pane)
            summed.push(pane, cells.signature, cells.grid_bin, cells.n)
        counts = summed.counts
        assert counts is not None  # there is a reference
        return counts

    def _look(self, reference: PsiReference, counts: NDArray[np.int64], threshold: float, tail: float) -> PsiLook:
        key = id(reference), self._pushed[-1]
        known = self._seen.figures
        if key not in known:
            make_room(known, _MOST_KEPT)
            known[key] = psi_figures(reference, counts)
        return looked_at(known[key], threshold, tail)


def psi_of_all(facts: PsiFacts) -> float:
    """PSI of all scores of the window; nan where there is none to report."""
    reference = facts.reference
    group = reference.names.index("all")
    counts, used = facts.counts[group], reference.used[group]
    if used.sum() < 2 or not counts.any():
        return math.nan
    p, q = shares(counts.astype(np.float64), used), shares(reference.rows[group], used)
    return float(psi_of(p, q, used))
