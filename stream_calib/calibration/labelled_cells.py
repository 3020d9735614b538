"""Labelled cells: what everything with groups is fitted to and audited on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.groups import Signature


@dataclass(frozen=True, slots=True, eq=False)
class LabelledCells:
    """Counts by (signature, grid bin), of whatever unit buckets and time they were summed over; columns (k,).

    `signature` intp: place in `signatures`; `grid_bin` integer of 0 .. 401; `labelled`, `positives` float64, whole or
    decayed by age, 0 <= positives <= labelled. A (signature, bin) may occur more than once.
    """

    signatures: Sequence[Signature]
    signature: NDArray[np.intp]
    grid_bin: NDArray[np.integer]
    labelled: NDArray[np.float64]
    positives: NDArray[np.float64]

    def rows(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> LabelledCells:
        """The chosen cells, with the same signatures."""
        return LabelledCells(
            self.signatures,
            self.signature[chosen],
            self.grid_bin[chosen],
            self.labelled[chosen],
            self.positives[chosen],
        )
