"""Scores of panes in a row by signature and grid bin: all that detectors of outcomes need to know of their cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.grid import N_BINS
from stream_calib.windows.cells import MaturedCells


@dataclass(frozen=True, slots=True, eq=False)
class PaneTotals:
    """Columns (k,), sorted by pane, signature and grid bin. Unit buckets make no difference here."""

    first_pane: int
    panes: int
    hashes: NDArray[np.uint64]
    """(s,) signatures that are in any of the panes."""
    part: NDArray[np.intp]
    """Number of the pane, 0 .. panes - 1."""
    place: NDArray[np.intp]
    """Of the signature in `hashes`."""
    grid_bin: NDArray[np.intp]
    n: NDArray[np.int64]
    """Scores; and of these:"""
    labelled: NDArray[np.int64]
    positives: NDArray[np.int64]

    @classmethod
    def of(cls, first_pane: int, cells: Sequence[MaturedCells]) -> PaneTotals:
        """Of `first_pane` and those behind it."""
        signature, bins = (np.concatenate([getattr(c, name) for c in cells]) for name in ("signature", "grid_bin"))
        part = np.repeat(np.arange(len(cells)), [len(c.signature) for c in cells])
        hashes, place = np.unique(signature, return_inverse=True)
        place = place.reshape(-1) + len(hashes) * part
        key, member = np.unique(place * N_BINS + bins, return_inverse=True)
        unlabelled, labelled, positives = np.zeros((3, len(key)), dtype=np.int64)
        for name, total in (("unlabelled", unlabelled), ("labelled", labelled), ("positives", positives)):
            np.add.at(total, member.reshape(-1), np.concatenate([getattr(c, name) for c in cells]))
        place, grid_bin = np.divmod(key, N_BINS)
        part, place = np.divmod(place, max(len(hashes), 1))
        return cls(first_pane, len(cells), hashes, part, place, grid_bin, unlabelled + labelled, labelled, positives)

    def since(self, pane: int) -> PaneTotals:
        """The same without the panes before, which is one of them."""
        skipped = pane - self.first_pane
        if not skipped:
            return self
        rows = slice(int(np.searchsorted(self.part, skipped)), None)
        columns = (self.place, self.grid_bin, self.n, self.labelled, self.positives)
        part = self.part[rows] - skipped
        return PaneTotals(pane, self.panes - skipped, self.hashes, part, *(column[rows] for column in columns))
