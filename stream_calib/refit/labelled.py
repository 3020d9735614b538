"""Cells as fits, audits and the gate take them: with signatures of values, those derived from time at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.groups import Signature
from stream_calib.calibration.labelled_cells import LabelledCells
from stream_calib.calibration.time_attributes import TimeAttributes
from stream_calib.drift.psi_window import Signatures
from stream_calib.refit.decayed_counts import FitCells
from stream_calib.windows.cells import EMPTY_MATURED, MaturedCells


@dataclass(frozen=True, slots=True)
class PaneCells:
    """Some of a matured pane's cells."""

    pane: int
    complete: bool
    winners: int
    """Of the whole pane, all unit buckets."""
    cells: MaturedCells


@dataclass(frozen=True, slots=True)
class FitData:
    """The fit buckets' cells that have labelled rows at either time scale; columns (k,)."""

    cells: LabelledCells
    """Decayed at the half-life of the structure."""
    level_labelled: NDArray[np.float64]
    level_positives: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TrailingCells:
    """The cells of complete panes one after the other, not summed; columns (k,)."""

    cells: LabelledCells
    pane: NDArray[np.int64]
    unit_bucket: NDArray[np.uint8]


def fit_data(cells: FitCells, signatures: Signatures, derived: Sequence[int] = ()) -> FitData:
    """`derived`: places, among the derived attributes that are counted, of those that the signatures end with."""
    chosen = (cells.labelled > 0) | (cells.level_labelled > 0)
    values, place = signature_values(cells.signature[chosen], signatures)
    if derived:
        values, place = _extended(values, place, cells.derived[chosen], cells.derived_values, derived)
    columns = [
        column[chosen] for column in (cells.labelled, cells.positives, cells.level_labelled, cells.level_positives)
    ]
    grid_bin = cells.grid_bin[chosen]
    if len(derived) < len(cells.derived_values[0] if cells.derived_values else ()):
        # Cells that differed in what is left out now are one.
        width = int(grid_bin.max(initial=0)) + 1
        keys, member = np.unique(place * width + grid_bin, return_inverse=True)
        place, grid_bin = keys // width, (keys % width).astype(np.uint16)
        columns = [np.bincount(member, column, len(keys)).astype(np.float64) for column in columns]
    labelled, positives, level_labelled, level_positives = columns
    return FitData(LabelledCells(values, place, grid_bin, labelled, positives), level_labelled, level_positives)


def trailing_cells(panes: Sequence[PaneCells], signatures: Signatures, derived: TimeAttributes | None) -> TrailingCells:
    """The cells of those of the panes that are complete; their signatures end with the derived values, if any."""
    complete = [p for p in panes if p.complete]
    cells, sizes = EMPTY_MATURED, [len(p.cells.labelled) for p in complete]
    if complete:
        cells = MaturedCells(
            *(np.concatenate([getattr(p.cells, name) for p in complete]) for name in MaturedCells.__slots__)
        )
    pane = np.repeat(np.array([p.pane for p in complete], dtype=np.int64), sizes)
    values, place = signature_values(cells.signature, signatures)
    if derived is not None:
        place, values = derived.extend(place, values, pane)
    return TrailingCells(
        cells=LabelledCells(
            values, place, cells.grid_bin, cells.labelled.astype(np.float64), cells.positives.astype(np.float64)
        ),
        pane=pane,
        unit_bucket=cells.unit_bucket,
    )


def signature_values(hashes: NDArray[np.uint64], signatures: Signatures) -> tuple[list[Signature], NDArray[np.intp]]:
    """The distinct signatures' values, in the order of their hashes, and (k,) the place of each cell's among them."""
    distinct, place = np.unique(hashes, return_inverse=True)
    dictionary = signatures(distinct.tolist())
    return [tuple(dictionary[h]) for h in distinct.tolist()], place.astype(np.intp)


def _extended(
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
