"""Cells as fits, audits and the gate take them: rows by their weight, and signatures of values, those derived from time
at the end. This and `reference.py` are where counts become weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.groups import Signature
from stream_calib.calibration.labelled_cells import LabelledCells
from stream_calib.calibration.time_attributes import TimeAttributes
from stream_calib.drift.psi_window import Signatures
from stream_calib.refit.decayed_counts import FitCells
from stream_calib.refit.row_weights import CellWeights, RowWeights
from stream_calib.windows.cells import EMPTY_MATURED, MaturedCells

_COLUMNS = attrgetter(*MaturedCells.__slots__)
UNWEIGHTED = RowWeights()
"""Nothing was thinned."""


@dataclass(frozen=True, slots=True)
class PaneCells:
    """Some of a matured pane's cells."""

    pane: int
    complete: bool
    winners: int
    """Of the whole pane, all unit buckets."""
    cells: MaturedCells
    _rows: NDArray[np.int64] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def rows(self) -> NDArray[np.int64]:
        """(6, k) the columns of the cells as one, made once: a pane is put behind others day after day, and six arrays
        of hundreds of panes take six times as long as one."""
        if self._rows is None:
            columns = _COLUMNS(self.cells)
            made = np.empty((len(columns), len(self.cells.labelled)), dtype=np.int64)
            for row, column in zip(made, columns, strict=True):
                row[:] = column.view(np.int64) if column.dtype == np.uint64 else column
            object.__setattr__(self, "_rows", made)
            return made
        return self._rows


@dataclass(frozen=True, slots=True)
class FitData:
    """The fit buckets' cells that have labelled rows at either time scale, by weight; columns (k,)."""

    cells: LabelledCells
    """Decayed at the half-life of the structure."""
    level_labelled: NDArray[np.float64]
    level_positives: NDArray[np.float64]
    design_effect: float
    """Of the weights, see `CellWeights.design_effect`."""
    level_design_effect: float


@dataclass(frozen=True, slots=True)
class TrailingCells:
    """The cells of complete panes one after the other, not summed; columns (k,)."""

    cells: LabelledCells
    """By weight."""
    pane: NDArray[np.int64]
    unit_bucket: NDArray[np.uint8]
    labelled_rows: NDArray[np.int64]
    """Counts, as the next two."""
    positive_rows: NDArray[np.int64]
    unlabelled_rows: NDArray[np.int64]
    weights: CellWeights


def fit_data(
    cells: FitCells, signatures: Signatures, derived: Sequence[int] = (), weights: RowWeights = UNWEIGHTED
) -> FitData:
    """`derived`: places, among the derived attributes that are counted, of those that the signatures end with."""
    chosen = (cells.labelled > 0) | (cells.level_labelled > 0)
    values, place, inverse_rate = signature_values(cells.signature[chosen], signatures, weights)
    if derived:
        values, place = extended_signatures(values, place, cells.derived[chosen], cells.derived_values, derived)
    counts = cells.labelled[chosen], cells.positives[chosen]
    level_counts = cells.level_labelled[chosen], cells.level_positives[chosen]
    of_cells = weights.of_cells(inverse_rate)
    columns = [*of_cells.weighted(*counts), *of_cells.weighted(*level_counts)]
    grid_bin = cells.grid_bin[chosen]
    if weights.keep_rates or len(derived) < len(cells.derived_values[0] if cells.derived_values else ()):
        # Cells that differed in what is left out now are one.
        width = int(grid_bin.max(initial=0)) + 1
        keys, member = np.unique(place * width + grid_bin, return_inverse=True)
        place, grid_bin = keys // width, (keys % width).astype(np.uint16)
        columns = [np.bincount(member, column, len(keys)).astype(np.float64) for column in columns]
    labelled, positives, level_labelled, level_positives = columns
    return FitData(
        LabelledCells(values, place, grid_bin, labelled, positives),
        level_labelled,
        level_positives,
        of_cells.design_effect(*counts),
        of_cells.design_effect(*level_counts),
    )


def believed(cells: LabelledCells, design_effect: float) -> LabelledCells:
    """The cells with as many rows as their weights are worth, for what sets rows against a prior or a ridge."""
    return replace(cells, labelled=cells.labelled / design_effect, positives=cells.positives / design_effect)


def trailing_cells(
    panes: Iterable[PaneCells],
    signatures: Signatures,
    derived: TimeAttributes | None,
    weights: RowWeights = UNWEIGHTED,
    *,
    labelled_only: bool = False,
) -> TrailingCells:
    """The cells of those of the panes that are complete; their signatures end with the derived values, if any.

    `labelled_only`: those that have labelled rows.
    """
    cells, pane = one_after_another([p for p in panes if p.complete])
    if labelled_only:
        chosen = cells.labelled > 0
        cells, pane = MaturedCells(*(column[chosen] for column in _COLUMNS(cells))), pane[chosen]
    values, place, inverse_rate = signature_values(cells.signature, signatures, weights)
    if derived is not None:
        place, values = derived.extend(place, values, pane)
    of_cells = weights.of_cells(inverse_rate)
    return TrailingCells(
        cells=LabelledCells(values, place, cells.grid_bin, *of_cells.weighted(cells.labelled, cells.positives)),
        pane=pane,
        unit_bucket=cells.unit_bucket,
        labelled_rows=cells.labelled,
        positive_rows=cells.positives,
        unlabelled_rows=cells.unlabelled,
        weights=of_cells,
    )


def one_after_another(panes: Sequence[PaneCells]) -> tuple[MaturedCells, NDArray[np.int64]]:
    """The cells of the panes one after the other, and (k,) the pane of each."""
    rows = [p.rows for p in panes]
    pane = np.repeat(np.array([p.pane for p in panes], dtype=np.int64), [r.shape[1] for r in rows])
    together = np.concatenate([_NONE.rows, *rows], axis=1)
    columns = [
        row.view(np.uint64) if empty.dtype == np.uint64 else row.astype(empty.dtype, copy=False)
        for row, empty in zip(together, _COLUMNS(EMPTY_MATURED), strict=True)
    ]
    return MaturedCells(*columns), pane


_NONE = PaneCells(0, True, 0, EMPTY_MATURED)


def signature_values(
    hashes: NDArray[np.uint64], signatures: Signatures, weights: RowWeights
) -> tuple[list[Signature], NDArray[np.intp], NDArray[np.float64]]:
    """The attribute values of k cells' signatures: the distinct ones, in the order of their hashes, (k,) the place of
    each cell's among them, and (k,) 1 / its keep rate."""
    distinct, place = np.unique(hashes, return_inverse=True)
    dictionary = signatures(distinct.tolist())
    values, of_signature, inverse_rate = weights.of_signatures([tuple(dictionary[h]) for h in distinct.tolist()])
    place = place.reshape(-1)
    return values, of_signature[place], inverse_rate[place]


def extended_signatures(
    own: Sequence[Signature],
    place: NDArray[np.intp],
    derived_place: NDArray[np.intp],
    derived_values: Sequence[tuple[str, ...]],
    derived: Sequence[int],
) -> tuple[list[Signature], NDArray[np.intp]]:
    """The signatures with some of the derived values at their ends, and (k,) the place of each cell's among them."""
    kept = [tuple(values[i] for i in derived) for values in derived_values]
    used = sorted(set(kept))
    number = np.array([used.index(values) for values in kept], dtype=np.intp)[derived_place]
    pairs, extended_place = np.unique(place * len(used) + number, return_inverse=True)
    extended = [own[pair // len(used)] + used[pair % len(used)] for pair in pairs.tolist()]
    return extended, extended_place.astype(np.intp)
