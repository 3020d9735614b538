"""Labelled cells: what everything with groups is fitted to and audited on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.grid import N_BINS
from stream_calib.calibration.groups import Family, Signature
from stream_calib.errors import FitError, LengthMismatchError, NonFiniteInputError


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

    def by_bin(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Labelled rows and positives (402,) of each grid bin, over all signatures."""
        labelled, positives = (
            np.bincount(self.grid_bin, column, N_BINS).astype(np.float64, copy=False)
            for column in (self.labelled, self.positives)
        )
        return labelled, positives

    def merged(self) -> LabelledCells:
        """One cell for each (signature, bin), equal ones summed, in order of both."""
        key, place = np.unique(self.signature * N_BINS + self.grid_bin, return_inverse=True)
        labelled, positives = (
            np.bincount(place.reshape(-1), column, len(key)).astype(np.float64, copy=False)
            for column in (self.labelled, self.positives)
        )
        return LabelledCells(self.signatures, key // N_BINS, key % N_BINS, labelled, positives)

    def check_counts(self, where: str) -> None:
        """Raises NonFiniteInputError, or FitError where positives are below 0 or above the labelled rows."""
        labelled, positives = self.labelled, self.positives
        if not (np.isfinite(labelled).all() and np.isfinite(positives).all()):
            raise NonFiniteInputError(f"counts of {where} are NaN or infinite; check how the cells were summed")
        if (positives < 0).any() or (positives > labelled).any():
            raise FitError(
                f"a cell of {where} has positives below 0 or above its labelled rows; check how the cells were summed"
            )

    def check_families(self, families: Sequence[Family]) -> None:
        """Raises LengthMismatchError where families are of other signatures than these."""
        for family in families:
            if len(family.group_of) != len(self.signatures):
                raise LengthMismatchError(
                    f"family {family.rule.name} is of {len(family.group_of)} signatures, the cells of "
                    f"{len(self.signatures)}; make families of the cells' own signatures"
                )


def together(parts: Sequence[LabelledCells]) -> LabelledCells:
    """The cells of several parts over the same signatures, one part after the other."""
    columns = ("signature", "grid_bin", "labelled", "positives")
    return LabelledCells(parts[0].signatures, *(np.concatenate([getattr(p, c) for p in parts]) for c in columns))
