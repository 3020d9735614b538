"""Cells in alarm: from their alarm until they have been calm for as many events as the alarm took.

A cell that alarms starts again with nothing, so that its evidence is low says nothing at first. It is calm when it has
seen, since its alarm, as many events as the alarm was made of, and its mean M is at most the number n of events since:
E[M] <= n is what chance makes of it, while under a shift that goes on M grows exponentially. The count of events, not
M, begins anew once, with the first pane of another snapshot: what a refit has mended must show under what it published.
A cell that is watched no more is let go.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class OpenCell:
    """One cell in alarm."""

    name: str
    since_pane: int
    """First pane of what its first alarm was made of."""
    version: str
    """Snapshot with which it alarmed last."""
    needed: int
    """Events of the alarm."""
    after: int = 0
    """Events since the last alarm."""
    seen: int = 0
    """The same, or since the first pane of another snapshot."""
    changed: bool = False
    """Whether there was one."""


@dataclass(frozen=True, slots=True)
class OpenCells:
    """All cells in alarm of one alert, in the order in which they came to it."""

    cells: tuple[OpenCell, ...] = ()
    since_pane: int | None = None
    """First pane of the open alert; None while it is closed."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"cells": [asdict(cell) for cell in self.cells], "since_pane": self.since_pane}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> OpenCells:
        return cls(tuple(OpenCell(**cell) for cell in document["cells"]), document["since_pane"])


@dataclass(frozen=True, slots=True)
class Alarmed:
    """A cell that alarms, and what of: so many events since a pane."""

    name: str
    since_pane: int
    labelled: int


def moved(
    open_cells: OpenCells,
    alarms: Sequence[Alarmed],
    version: str,
    names: Sequence[str],
    events: NDArray[np.int64],
    log_mean: NDArray[np.float64],
) -> tuple[OpenCells, set[str]]:
    """The cells in alarm after a pane of `version`, and those whose alarm is news: of a cell that was in none, or that
    alarms under another snapshot than the last time. Columns (C,) of the watched cells: events of the pane, log of the
    mean M after it."""
    place = {name: i for i, name in enumerate(names)}
    kept: dict[str, OpenCell] = {}
    for cell in open_cells.cells:
        i = place.get(cell.name)
        if i is None:
            continue
        if not cell.changed and version != cell.version:
            cell = replace(cell, changed=True, seen=0)
        n = int(events[i])
        cell = replace(cell, after=cell.after + n, seen=cell.seen + n)
        if cell.seen < cell.needed or log_mean[i] > math.log(cell.after):
            kept[cell.name] = cell
    before = {cell.name: cell for cell in open_cells.cells}
    news = set()
    for alarmed in alarms:
        known = before.get(alarmed.name)
        if known is None or known.version != version:
            news.add(alarmed.name)
            needed = max(alarmed.labelled, 1)
        else:
            needed = known.needed
        since = alarmed.since_pane if known is None else known.since_pane
        kept[alarmed.name] = OpenCell(alarmed.name, since, version, needed)
    cells = tuple(kept.values())
    since_pane = open_cells.since_pane
    if cells and since_pane is None:
        since_pane = min(cell.since_pane for cell in cells)
    return OpenCells(cells, since_pane if cells else None), news
