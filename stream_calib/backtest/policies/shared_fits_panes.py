"""The panes of a history, unpacked once where they are used again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stream_calib.backtest.history import CellHistory
from stream_calib.calibration.groups import Signature
from stream_calib.refit.pane_totals import PaneTotals
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.pane_record import chained

_SUMMED_TOGETHER = 8
"""Panes. More take less time each, but what is served changes before some of them are asked for."""


class SharedPanes:
    """Cells of each pane, and the chain hash of the matured ones; made when they are first asked for."""

    def __init__(self, history: CellHistory, *, keeps: bool = True) -> None:
        """`keeps`: cells stay unpacked."""
        self.history, self._keeps = history, keeps
        self._scored: dict[int, ScoredCells] = {}
        self._matured: dict[int, MaturedCells] = {}
        self._totals: dict[int, PaneTotals] = {}
        self._chains: list[str] = []
        self._rows: dict[int, int] = {}

    def scored(self, pane: int) -> ScoredCells:
        cells = self._scored.get(pane)
        if cells is None:
            cells = self.history.scored(pane)
            if self._keeps:
                self._scored[pane] = cells
        return cells

    def scored_rows(self, pane: int) -> int:
        """Winners of the pane."""
        if pane not in self._rows:
            self._rows[pane] = int(self.scored(pane).n.sum())
        return self._rows[pane]

    def matured(self, pane: int) -> MaturedCells:
        """Raises StateError where the pane's labels are not final."""
        cells = self._matured.get(pane)
        if cells is None:
            cells = self.history.matured(pane)
            if self._keeps:
                self._matured[pane] = cells
        return cells

    def totals(self, pane: int) -> PaneTotals:
        """Of this pane and the next ones, as many as are summed together; all those whose labels are final. Raises
        StateError as `matured`."""
        number = pane // _SUMMED_TOGETHER
        if number not in self._totals:
            first = max(number * _SUMMED_TOGETHER, self.history.first_pane)
            end = max(min((number + 1) * _SUMMED_TOGETHER, self.history.last_matured + 1), pane + 1)
            self._totals[number] = PaneTotals.of(first, [self.matured(p) for p in range(first, end)])
        return self._totals[number].since(pane)

    def chain(self, pane: int) -> str:
        """Hash of the matured blobs up to the pane, whose labels are final."""
        first = self.history.first_pane
        for number in range(first + len(self._chains), pane + 1):
            blob = self.history.panes[number - first].matured
            assert blob is not None  # as is said above
            self._chains.append(chained(self._chains[-1] if self._chains else "", blob))
        return self._chains[pane - first]

    def signatures(self, hashes: Iterable[int]) -> Mapping[int, Signature]:
        """As `StateStore.signatures`."""
        known = self.history.signatures
        return {h: known[h] for h in hashes}
