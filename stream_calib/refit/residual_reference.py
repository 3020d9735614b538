"""What detectors of outcomes and of missing labels are frozen with: their cells, phi and epsilon, from the fit window.

Cells are those of everything, of each attribute, intersection and predicate, and of everything and each attribute by
interval of the candidate's probability. One of less than `drift.min_mass` of the rows is none of its own: its events
are watched in its parents, the group without the interval, the attributes of an intersection, and everything.

Where labels are thinned by class, all of this is of the rows that were kept: the candidate's probability p is then that
of a kept row (`RowWeights.of_kept`), so that outcomes need no weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.groups import Family, FamilyRule, Signature, make_family
from stream_calib.calibration.intervals import interval_of, log_odds_intervals
from stream_calib.calibration.multicalibration.audit import EVERYTHING
from stream_calib.calibration.multicalibration.chernoff_bounds import lower_limit, upper_limit
from stream_calib.calibration.rounding import round_significant
from stream_calib.config import Config
from stream_calib.drift.label_selection import tolerated
from stream_calib.drift.overdispersion import overdispersion
from stream_calib.drift.psi_window import Signatures
from stream_calib.refit.evidence import PastPanes, chosen_rows
from stream_calib.refit.gate_evidence import JudgedMap
from stream_calib.refit.groups import family_rules
from stream_calib.refit.labelled import PaneCells, trailing_cells
from stream_calib.refit.roles import ROLES
from stream_calib.refit.row_weights import RowWeights
from stream_calib.snapshot.compiled import predicate_document
from stream_calib.snapshot.model import WatchedCellDocument, WatchedDocument, WatchedFamilyDocument

Floats = NDArray[np.float64]
_EDGES = log_odds_intervals()


@dataclass(frozen=True, slots=True)
class _Rows:
    """Cells of panes under the candidate; columns (k,). `served`, `half_width`, `tolerance`: of kept rows."""

    signatures: Sequence[Signature]
    signature: NDArray[np.intp]
    interval: NDArray[np.intp]
    served: Floats
    half_width: Floats
    tolerance: Floats
    labelled: NDArray[np.int64]
    positives: NDArray[np.int64]
    scores: NDArray[np.int64]
    unit_bucket: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class _Family:
    """The cells of one family that are heavy enough, C of them; all else of the k rows is in cell 0.

    `places` (C,): of the cells from 1 on; `table` (s, intervals): cell of each signature and interval, or of each
    signature (s, 1); `cell` (k,): of each row.
    """

    rule: FamilyRule
    places: list[tuple[tuple[str, ...], int | None]]
    table: NDArray[np.intp]
    cell: NDArray[np.intp]
    phi: float

    def sums(self, column: NDArray[np.generic]) -> Floats:
        """(C,) sums of a column (k,) of the rows."""
        return np.bincount(self.cell, column, len(self.places) + 1)[1:].astype(np.float64, copy=False)


def watched(
    evidence: PastPanes, candidate: JudgedMap, signatures: Signatures, config: Config
) -> tuple[WatchedDocument | None, WatchedDocument | None]:
    """What the detectors of a candidate watch of outcomes, and of how many scores have a label."""
    past = _past(evidence, candidate, signatures, config)
    return _outcomes(*past, evidence, candidate, signatures, config), _coverage(*past, config)


def _outcomes(
    rows: _Rows,
    window: NDArray[np.intp],
    evidence: PastPanes,
    candidate: JudgedMap,
    signatures: Signatures,
    config: Config,
) -> WatchedDocument | None:
    """Of the rows of past windows, and (k,) the window of each. None where there are no three windows with labels; a
    family that has fewer is left out.

    epsilon of a cell is the largest of `drift.tolerance`; the one-sided bound on the cell's |mean of label - p|,
    simultaneous over cells and both sides at `calibration.delta`, from the buckets that nothing was fitted to (Chernoff
    limits at rows / phi where units are not single events); and the mean half width of p over the rows' grid bins.
    """
    families = _families(rows, rows.labelled, config, by_interval=True)
    expected, variance = rows.labelled * rows.served, rows.labelled * rows.served * (1.0 - rows.served)
    known = _with_phi(families, window, rows.positives - expected, variance)
    if not known or known[0].rule != EVERYTHING:
        return None
    untouched = _rows(_untouched(evidence, candidate), candidate, signatures, config)
    share = config.calibration.delta / (2 * sum(len(family.places) for family in known))
    half_widths, tolerances = rows.labelled * rows.half_width, np.zeros((len(rows.signatures), len(_EDGES) - 1))
    np.maximum.at(tolerances, (rows.signature, rows.interval), rows.tolerance)
    documents = []
    for family, bound in zip(known, _bounds(known, untouched, share, config.scores.unit is not None), strict=True):
        half_width = family.sums(half_widths) / family.sums(rows.labelled)
        tolerance, by_interval = np.zeros(len(family.places) + 1), family.table.shape[1] > 1
        np.maximum.at(tolerance, family.table, tolerances if by_interval else tolerances.max(axis=1, keepdims=True))
        epsilon = np.minimum(np.maximum(np.maximum(bound, half_width), tolerance[1:]), 1.0)
        documents.append(_document(family, epsilon, None))
    return WatchedDocument(edges=_EDGES, families=tuple(documents))


def _coverage(rows: _Rows, window: NDArray[np.intp], config: Config) -> WatchedDocument | None:
    """None as above, and where missing labels are given a value."""
    if config.windows.missing_label != "ignore":
        return None
    documents = []
    families = _families(rows, rows.scores, config, by_interval=False)
    for family in families:
        # 1/2 is added to either side (Jeffreys), or full coverage would know no variance.
        coverage = (family.sums(rows.labelled) + 0.5) / (family.sums(rows.scores) + 1.0)
        share = np.append(0.0, coverage)[family.cell]
        expected = rows.scores * share
        known = _with_phi([family], window, rows.labelled - expected, expected * (1.0 - share))
        documents += [_document(made, tolerated(coverage), coverage) for made in known]
    return WatchedDocument(edges=_EDGES, families=tuple(documents)) if documents else None


def _past(
    evidence: PastPanes, candidate: JudgedMap, signatures: Signatures, config: Config
) -> tuple[_Rows, NDArray[np.intp]]:
    """The rows of all past windows, and (k,) the window of each."""
    panes = [pane for window in evidence.windows for pane in window.outcomes]
    sizes = [sum(len(pane.cells.labelled) for pane in window.outcomes) for window in evidence.windows]
    return _rows(panes, candidate, signatures, config), np.repeat(np.arange(len(sizes)), sizes)


def _untouched(evidence: PastPanes, candidate: JudgedMap) -> list[PaneCells]:
    """Trailing panes of the certificate's buckets; of the audits' too, where no patches were made from them."""
    if not candidate.served.parts.rounds:
        return list(evidence.audited_panes)
    found = []
    for pane in evidence.audited_panes:
        of_certificate = np.isin(pane.cells.unit_bucket, ROLES["certificate"])
        found.append(PaneCells(pane.pane, pane.complete, pane.winners, chosen_rows(pane.cells, of_certificate)))
    return found


def _rows(panes: Sequence[PaneCells], candidate: JudgedMap, signatures: Signatures, config: Config) -> _Rows:
    weights = RowWeights.of(config)
    trailing = trailing_cells(panes, signatures, candidate.derived, weights)
    cells = trailing.cells
    edges = candidate.served.at_edges(cells.grid_bin, cells.signature, cells.signatures)
    current = (edges[:, 0] + edges[:, 1]) / 2
    low, served, high = (weights.of_kept(p) for p in (edges[:, 0], current, edges[:, 1]))
    tolerance = config.drift.tolerance
    above, below = (weights.of_kept(np.clip(current + t, 0.0, 1.0)) for t in (tolerance, -tolerance))
    return _Rows(
        cells.signatures,
        cells.signature,
        interval_of(_EDGES, current),
        served,
        np.abs(high - low) / 2,
        np.maximum(above - served, served - below),
        trailing.labelled_rows,
        trailing.positive_rows,
        trailing.labelled_rows + trailing.unlabelled_rows,
        trailing.unit_bucket,
    )


def _families(rows: _Rows, n: NDArray[np.int64], config: Config, *, by_interval: bool) -> list[_Family]:
    """Families with cells of enough of the n (k,) rows; attributes by interval only if asked for. phi is 1 yet."""
    attributes = [rule for rule in family_rules(config) if rule.predicate is None and len(rule.attributes) == 1]
    asked = [(EVERYTHING, False), (EVERYTHING, True), *((rule, False) for rule in family_rules(config))]
    asked += [(rule, True) for rule in attributes] if by_interval else []
    least, found, groups = config.drift.min_mass * float(n.sum()), [], _families_of(rows.signatures)
    # First by (signature, interval), which are few, then from there for each family.
    all_intervals = len(_EDGES) - 1
    row = rows.signature * all_intervals + rows.interval
    masses = np.bincount(row, n, len(rows.signatures) * all_intervals).reshape(-1, all_intervals)
    for rule, intervals in asked:
        family, size = groups(rule), all_intervals if intervals else 1
        group = family.group_of[:, None]
        place = np.where(group >= 0, group * size + np.arange(size) + 1, 0)
        of_places = masses if intervals else masses.sum(axis=1)
        mass = np.bincount(place.ravel(), of_places.ravel(), len(family.keys) * size + 1)[1:]
        kept = np.flatnonzero((mass >= least) & (mass > 0))
        if not len(kept):
            continue
        number = np.zeros(len(mass) + 1, dtype=np.intp)
        number[kept + 1] = np.arange(1, len(kept) + 1)
        table = number[place]
        cell = table.ravel()[row] if intervals else table[rows.signature, 0]
        places = [(family.keys[i // size], i % size if intervals else None) for i in kept.tolist()]
        found.append(_Family(rule, places, table, cell, 1.0))
    return found


def _with_phi(
    families: Sequence[_Family], window: NDArray[np.intp], residual: Floats, variance: Floats
) -> list[_Family]:
    """Those of the families whose phi is known, with it. Columns (k,)."""
    windows, found = int(window.max(initial=-1)) + 1, []
    for family in families:
        size = len(family.places) + 1
        place = window * size + family.cell
        sums = [
            np.ascontiguousarray(np.bincount(place, column, windows * size).reshape(-1, size)[:, 1:], dtype=np.float64)
            for column in (residual, variance)
        ]
        phi = overdispersion(*sums)
        if phi is not None:
            found.append(replace(family, phi=phi))
    return found


def _bounds(families: Sequence[_Family], rows: _Rows, share: float, clustered: bool) -> list[Floats]:
    """Of each family (C,) what |mean of label - p| of each cell exceeds with probability 2 x `share` at most; 1 without
    rows."""
    groups = _families_of(rows.signatures)
    sums = [_sums(family, groups(family.rule), rows) for family in families]
    n, positives, expected = (np.concatenate(column) for column in zip(*sums, strict=True))
    sizes = [len(family.places) for family in families]
    known = np.maximum(n, 1e-300)
    rate, report = positives / known, expected / known
    phi = np.repeat([family.phi for family in families], sizes)
    allowed = np.log(1.0 / share) / (known / phi if clustered else known)
    above, below = upper_limit(rate, allowed) - report, report - lower_limit(rate, allowed)
    return np.split(np.where(n > 0, np.maximum(above, below), 1.0), np.cumsum(sizes)[:-1])


def _sums(family: _Family, groups: Family, rows: _Rows) -> tuple[Floats, Floats, Floats]:
    """(C,) labelled rows, positives and expected positives of each cell. `groups`: of the rows' signatures."""
    row = {key: i for i, key in enumerate(groups.keys)}
    intervals = len(_EDGES) - 1 if family.places[0][1] is not None else 1
    table = np.full((len(groups.keys) + 1, intervals), -1, dtype=np.intp)
    for number, (key, interval) in enumerate(family.places):
        if key in row:
            table[row[key], interval or 0] = number
    cell = table[groups.group_of[rows.signature], rows.interval if intervals > 1 else 0]
    inside, size = cell >= 0, len(family.places)
    n, positives, expected = (
        np.bincount(cell[inside], column[inside], size).astype(np.float64, copy=False)
        for column in (rows.labelled, rows.positives, rows.labelled * rows.served)
    )
    return n, positives, expected


def _families_of(signatures: Sequence[Signature]) -> Callable[[FamilyRule], Family]:
    """`make_family` of these signatures, once for each rule."""
    return cache(lambda rule: make_family(rule, signatures))


def _document(family: _Family, epsilon: Floats, coverage: Floats | None) -> WatchedFamilyDocument:
    # Twelve digits: what is in a snapshot must not depend on the last bits of a sum.
    shares = [None] * len(epsilon) if coverage is None else round_significant(coverage).tolist()
    return WatchedFamilyDocument(
        attributes=family.rule.attributes,
        predicate=predicate_document(family.rule),
        phi=float(round_significant(family.phi)),
        cells=tuple(
            WatchedCellDocument(values=values, interval=interval, epsilon=e, coverage=share)
            for (values, interval), e, share in zip(
                family.places, round_significant(epsilon).tolist(), shares, strict=True
            )
        ),
    )
