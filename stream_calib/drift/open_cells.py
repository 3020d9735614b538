"""Cells in alarm: from their alarm until they have been calm for as many events as the alarm took.

A cell that alarms starts again with nothing, so that its evidence is low says nothing at first. It is calm when it has
seen, since its alarm, as many labelled events as the alarm was made of, and its mean M is below the square root of the
threshold. The count begins anew once, with the first pane of another snapshot: what a refit has mended must show under
what it published. A cell that is watched no more is let go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_calib.drift.residual import ResidualAlarm


@dataclass(frozen=True, slots=True)
class OpenCell:
    """One cell in alarm."""

    name: str
    since_pane: int
    """First pane of what its first alarm was made of."""
    version: str
    """Snapshot with which it alarmed last."""
    needed: int
    """Labelled events of that alarm."""
    seen: int = 0
    """Labelled events since, or since the first pane of another snapshot."""
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
class AlarmedCell:
    """An alarm with what it was made of."""

    alarm: ResidualAlarm
    since_pane: int
    labelled: int


def moved(
    open_cells: OpenCells,
    alarms: Sequence[AlarmedCell],
    version: str,
    names: Sequence[str],
    labelled: NDArray[np.int64],
    calm: NDArray[np.bool_],
) -> tuple[OpenCells, tuple[AlarmedCell, ...]]:
    """The cells in alarm after a pane of `version`, and the alarms that are news: of a cell that was in none, or that
    alarms under another snapshot than the last time. Columns (C,) of the watched cells."""
    place = {name: i for i, name in enumerate(names)}
    kept: dict[str, OpenCell] = {}
    for cell in open_cells.cells:
        i = place.get(cell.name)
        if i is None:
            continue
        if not cell.changed and version != cell.version:
            cell = replace(cell, changed=True, seen=0)
        cell = replace(cell, seen=cell.seen + int(labelled[i]))
        if cell.seen < cell.needed or not calm[i]:
            kept[cell.name] = cell
    before = {cell.name: cell for cell in open_cells.cells}
    news = []
    for alarmed in alarms:
        name = alarmed.alarm.name
        known = before.get(name)
        if known is None or known.version != version:
            news.append(alarmed)
        since = alarmed.since_pane if known is None else known.since_pane
        kept[name] = OpenCell(name, since, version, max(alarmed.labelled, 1))
    cells = tuple(kept.values())
    since_pane = open_cells.since_pane
    if cells and since_pane is None:
        since_pane = min(cell.since_pane for cell in cells)
    return OpenCells(cells, since_pane if cells else None), tuple(news)
