"""The PSI window of policies that share references: each sum and each look is made once."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stream_calib.backtest.policies.shared_fits_panes import SharedPanes
from stream_calib.config import Config
from stream_calib.drift.psi import PsiLook, PsiReference, look
from stream_calib.drift.psi_window import PsiWindow
from stream_calib.refit.decider import psi_window

_MOST_KEPT = 40_000
"""Sums of windows, and looks, some kilobytes each."""


@dataclass(slots=True)
class PsiSeen:
    """By reference (`id`; whoever fills this keeps the references) and last pane of the window."""

    counts: dict[tuple[int, int], NDArray[np.int64]] = field(default_factory=dict)
    looks: dict[tuple[int, int, float, float], PsiLook] = field(default_factory=dict)


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
        return int(self._cells.scored(self._pushed[-1]).n.sum()) if self._pushed else 0

    @property
    def counts(self) -> NDArray[np.int64] | None:
        if self._used is None:
            return None
        key = id(self._used), self._pushed[-1] if self._pushed else -1
        known = self._seen.counts
        if key not in known:
            _make_room(known)
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
        key = id(reference), self._pushed[-1], threshold, tail
        known = self._seen.looks
        if key not in known:
            _make_room(known)
            known[key] = look(reference, counts, threshold, tail)
        return known[key]


def _make_room(known: dict[tuple[int, int], NDArray[np.int64]] | dict[tuple[int, int, float, float], PsiLook]) -> None:
    while len(known) >= _MOST_KEPT:
        known.pop(next(iter(known)))  # type: ignore[arg-type]  # a key of that very dict
