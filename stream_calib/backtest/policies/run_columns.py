"""The cells of a history as columns over all its panes, by which every policy on it is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.backtest.history import CellHistory
from stream_calib.calibration.groups import Signature
from stream_calib.config import Config
from stream_calib.refit.labelled import signature_values
from stream_calib.refit.row_weights import RowWeights
from stream_calib.windows.cells import EMPTY_MATURED, MaturedCells


@dataclass(frozen=True, slots=True, eq=False)
class CellColumns:
    """Matured winners by (pane, signature, grid bin) of all unit buckets together, sorted by these; columns (k,).
    `labelled`, `positives` are by weight (keep rates), and `squared` is the sum of the rows' squared weights."""

    first_pane: int
    starts: NDArray[np.intp]
    """(m + 1,) where the cells of each matured pane begin."""
    scored: NDArray[np.int64]
    """(p,) winners of each pane, of those too whose labels are not final."""
    values: Sequence[Signature]
    """Attribute values; `signature` (k,) is a place in them."""
    signature: NDArray[np.intp]
    pane: NDArray[np.int64]
    grid_bin: NDArray[np.uint16]
    rows: NDArray[np.int64]
    """Labelled rows, as they came."""
    unlabelled: NDArray[np.int64]
    labelled: NDArray[np.float64]
    positives: NDArray[np.float64]
    squared: NDArray[np.float64]

    def of_panes(self, first: int, end: int) -> slice:
        """The cells of the matured ones among the panes first .. end - 1."""
        last = len(self.starts) - 1
        return slice(*(int(self.starts[min(max(pane - self.first_pane, 0), last)]) for pane in (first, end)))


def cell_columns(history: CellHistory, config: Config) -> CellColumns:
    """The history's columns. Raises StateError where cells are damaged."""
    weights = RowWeights.of(config)
    panes = [_by_signature(history.matured(p)) for p in range(history.first_pane, history.last_matured + 1)]
    sizes = [len(cells.labelled) for cells in panes]
    columns = {
        name: np.concatenate([getattr(cells, name) for cells in (EMPTY_MATURED, *panes)])
        for name in MaturedCells.__slots__
    }
    known = history.signatures

    def dictionary(hashes: object) -> dict[int, Signature]:
        return {h: known[h] for h in hashes}  # type: ignore[attr-defined]  # an iterable of hashes, see Signatures

    values, signature, inverse_rate = signature_values(columns["signature"], dictionary, weights)
    of_cells = weights.of_cells(inverse_rate)
    rows, positive_rows = columns["labelled"], columns["positives"]
    labelled, positives = of_cells.weighted(rows, positive_rows)
    return CellColumns(
        first_pane=history.first_pane,
        starts=np.concatenate([[0], np.cumsum(sizes, dtype=np.intp)]),
        scored=np.array([int(history.scored(p).n.sum()) for p in range(history.first_pane, history.last_pane + 1)]),
        values=values,
        signature=signature,
        pane=np.repeat(np.arange(history.first_pane, history.first_pane + len(panes)), sizes),
        grid_bin=columns["grid_bin"],
        rows=rows,
        unlabelled=columns["unlabelled"],
        labelled=labelled,
        positives=positives,
        squared=positive_rows * of_cells.positive**2 + (rows - positive_rows) * of_cells.negative**2,
    )


def _by_signature(cells: MaturedCells) -> MaturedCells:
    """Without the unit buckets."""
    none = np.zeros_like(cells.unit_bucket)
    return MaturedCells.merge(
        [MaturedCells(none, cells.signature, cells.grid_bin, cells.labelled, cells.positives, cells.unlabelled)]
    )
