"""What the detectors of one version make of a matured pane: its counts by watched cell and probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.groups import Signature
from stream_calib.calibration.intervals import checked_edges
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.drift.cell_index import CellIndex, IndexedFamily
from stream_calib.drift.outcome_step import PaneOutcomes
from stream_calib.drift.psi_window import Signatures
from stream_calib.drift.residual import ResidualSums, WatchedCells
from stream_calib.errors import DamagedSnapshotError, StreamCalibError
from stream_calib.refit.pane_totals import PaneTotals
from stream_calib.refit.row_weights import RowWeights
from stream_calib.snapshot.compiled import compile_snapshot, rule_of, time_attributes
from stream_calib.snapshot.model import ResolvedSnapshot, WatchedDocument, WatchedFamilyDocument
from stream_calib.windows.cells import MaturedCells

_MOST_COMPILED = 4_096
"""Signatures whose tables are held, 6.4 kB each."""
_MOST_KNOWN = 200_000
"""Signatures whose groups are held; beyond this they are looked up again."""


@dataclass(frozen=True, slots=True, eq=False)
class Detectors:
    """The cells of one document, and how events find theirs."""

    index: CellIndex
    watched: WatchedCells
    coverage: NDArray[np.float64]
    """(C,) share of the scores that had a label; nan where that is not what is watched."""


class OutcomeWatch:
    """Of one version. Raises DamagedSnapshotError where its documents do not make detectors."""

    def __init__(self, resolved: ResolvedSnapshot, weights: RowWeights, signatures: Signatures) -> None:
        structure, reference = resolved.structure, resolved.structure.reference
        self.version = resolved.version
        self._resolved, self._weights, self._signatures = resolved, weights, signatures
        self._derived = time_attributes(structure)
        try:
            self.residual = _detectors(reference.residual, structure.attributes, reference.labelled_per_pane)
            self.selection = _detectors(reference.selection, structure.attributes, reference.scored_per_pane)
        except (ValueError, StreamCalibError) as error:
            raise DamagedSnapshotError(f"detectors of snapshot {resolved.version} cannot be used: {error}") from error
        self._indexes = [made.index for made in (self.residual, self.selection) if made is not None]
        self._place: dict[int, int] = {}
        self._values: list[Signature] = []
        self._rows: list[NDArray[np.intp]] = []

    @cached_property
    def _served(self) -> ServedMap:
        return compile_snapshot(self._resolved, _MOST_COMPILED)

    def shown(self, pane: int, cells: MaturedCells) -> tuple[PaneOutcomes | None, PaneOutcomes | None]:
        """What the detectors of outcomes and of missing labels are shown of a pane; None where there are none."""
        outcomes, scores = self.sums(pane, cells)
        return _shown(self.version, self.residual, outcomes), _shown(self.version, self.selection, scores)

    def sums(self, pane: int, cells: MaturedCells) -> tuple[ResidualSums | None, ResidualSums | None]:
        """Labelled rows of a pane by cell of `residual`, and scores, with labels as positives, by cell of `selection`;
        None where the version has no such detectors."""
        return self.sums_of(PaneTotals.of(pane, [cells])) if self._indexes else (None, None)

    def sums_of(self, totals: PaneTotals) -> tuple[ResidualSums | None, ResidualSums | None]:
        """The same of several panes: C cells, of the i-th pane numbered from i C on."""
        if not self._indexes:
            return None, None
        values, rows = self._of(totals.hashes.tolist())
        current = self._current(totals, values)
        made: list[ResidualSums | None] = []
        for detectors, total, found, served in (
            (self.residual, totals.labelled, totals.positives, self._weights.of_kept(current)),
            (self.selection, totals.n, totals.labelled, current),
        ):
            if detectors is None:
                made.append(None)
                continue
            own, rows = rows[:, : len(detectors.index.families)], rows[:, len(detectors.index.families) :]
            made.append(detectors.index.sums(own[totals.place], current, served, total, found, totals.part))
        outcomes, coverage = made
        if coverage is not None and self.selection is not None:
            share = self.selection.coverage[coverage.cell % self.selection.index.size]
            coverage = ResidualSums(coverage.cell, share, coverage.labelled, coverage.positives)
        return outcomes, coverage

    def _current(self, totals: PaneTotals, values: list[Signature]) -> NDArray[np.float64]:
        """(k,) what is served."""
        place = totals.place
        if self._derived is not None:
            place, values = self._derived.extend(place, values, totals.first_pane + totals.part)
        return self._served.at_centres(totals.grid_bin, place, values)

    def _of(self, hashes: Sequence[int]) -> tuple[list[Signature], NDArray[np.intp]]:
        """Attribute values of signatures, and (s, F) their rows in the families of all detectors."""
        missing = [h for h in hashes if h not in self._place]
        if len(self._place) + len(missing) > _MOST_KNOWN:
            self._place, self._values, self._rows, missing = {}, [], [], list(hashes)
        if missing:
            dictionary = self._signatures(missing)
            distinct, place, _ = self._weights.of_signatures([tuple(dictionary[h]) for h in missing])
            rows = np.concatenate([index.rows_of(distinct) for index in self._indexes], axis=1)
            for h, i in zip(missing, place.tolist(), strict=True):
                self._place[h] = len(self._values)
                self._values.append(distinct[i])
                self._rows.append(rows[i])
        places = [self._place[h] for h in hashes]
        width = sum(len(index.families) for index in self._indexes)
        rows = np.array([self._rows[i] for i in places], dtype=np.intp).reshape(-1, width)
        return [self._values[i] for i in places], rows


def _shown(version: str, detectors: Detectors | None, sums: ResidualSums | None) -> PaneOutcomes | None:
    return None if detectors is None or sums is None else PaneOutcomes(version, detectors.watched, sums)


def _detectors(document: WatchedDocument | None, attributes: Sequence[str], per_pane: float) -> Detectors | None:
    if document is None:
        return None
    intervals = len(checked_edges(document.edges)) - 1
    families: list[IndexedFamily] = []
    names: list[str] = []
    family_of: list[int] = []
    cells = [cell for family in document.families for cell in family.cells]
    for number, family in enumerate(document.families):
        indexed = _indexed(family, attributes, intervals, len(names), document.edges)
        families.append(indexed[0])
        names += indexed[1]
        family_of += [number] * len(family.cells)
    watched = WatchedCells(
        tuple(_unique(names)),
        np.array(family_of, dtype=np.intp),
        np.array([cell.epsilon for cell in cells]),
        np.array([family.phi for family in document.families]),
        per_pane,
    )
    coverage = np.array([np.nan if cell.coverage is None else cell.coverage for cell in cells])
    return Detectors(CellIndex(families, document.edges, len(names)), watched, coverage)


def _indexed(
    family: WatchedFamilyDocument, attributes: Sequence[str], intervals: int, first: int, edges: Sequence[float]
) -> tuple[IndexedFamily, list[str]]:
    """The family with its cells numbered from `first` on, and their names."""
    rule = rule_of(family, attributes)
    row = {key: i for i, key in enumerate(dict.fromkeys(cell.values for cell in family.cells))}
    by_interval = any(cell.interval is not None for cell in family.cells)
    numbers = np.full((len(row), intervals if by_interval else 1), -1, dtype=np.intp)
    names = []
    for number, cell in enumerate(family.cells, first):
        numbers[row[cell.values], cell.interval or 0] = number
        name = rule.group_name(cell.values)
        if cell.interval is not None:
            low, high = edges[cell.interval], edges[cell.interval + 1]
            name = f"{name}, [{low:.3g}, {high:.3g}{']' if cell.interval == intervals - 1 else ')'}"
        names.append(name)
    return IndexedFamily(rule, row, numbers), names


def _unique(names: Sequence[str]) -> list[str]:
    """A value may read like another cell's name (`UA & origin=EWR` of a carrier): that cell gets a number behind it."""
    taken: dict[str, None] = {}
    for name in names:
        number, own = 1, name
        while own in taken:
            number += 1
            own = f"{name} ({number})"
        taken[own] = None
    return list(taken)
