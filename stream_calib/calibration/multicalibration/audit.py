"""Audits: how far off a map is in every (group, interval of current probability)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.groups import Family, FamilyRule
from stream_calib.calibration.labelled_cells import LabelledCells
from stream_calib.calibration.multicalibration.target import AuditTarget
from stream_calib.errors import LengthMismatchError

EVERYTHING = FamilyRule((), (), predicate="all")
"""The family whose one group holds every signature: plain calibration is audited with the rest."""


@dataclass(frozen=True, slots=True, eq=False)
class FamilyAudit:
    """Sums over the audit cells (G, m) of one family: its G groups by the m intervals.

    `rows`: labelled rows (or their weight); `positives`; `expected`: the sum of the map's probabilities f; `variance`:
    that of f (1 - f), the variance of the positives where the map is right.
    """

    family: Family
    rows: NDArray[np.float64]
    positives: NDArray[np.float64]
    expected: NDArray[np.float64]
    variance: NDArray[np.float64]

    @property
    def residual(self) -> NDArray[np.float64]:
        """(G, m) mean of Y - f, the r^ of theory; 0 in cells without rows."""
        return (self.positives - self.expected) / np.where(self.rows > 0, self.rows, 1.0)


def audit(
    cells: LabelledCells, probability: NDArray[np.float64], families: Sequence[Family], target: AuditTarget
) -> list[FamilyAudit]:
    """The audits of the families, whose groups are those of the cells' signatures.

    `probability` (k,): the map's value f at each cell's grid bin. A cell belongs to an interval by that value. Raises
    LengthMismatchError where they do not belong together.
    """
    s, m = len(cells.signatures), target.intervals
    if probability.shape != cells.labelled.shape:
        raise LengthMismatchError(f"probabilities {probability.shape} for cells {cells.labelled.shape}: give one each")
    cells.check_families(families)
    # First by (signature, interval), which are few, then from there for each family.
    place = cells.signature * m + target.interval_of(probability)
    expected = cells.labelled * probability
    by_signature = [
        np.bincount(place, column, s * m).reshape(s, m).astype(np.float64, copy=False)
        for column in (cells.labelled, cells.positives, expected, expected * (1.0 - probability))
    ]
    used = np.flatnonzero(by_signature[0].any(axis=1))
    rows = [sums[used] for sums in by_signature]
    return [_of_family(family, family.group_of[used], rows, m) for family in families]


def _of_family(
    family: Family, group: NDArray[np.intp], by_signature: Sequence[NDArray[np.float64]], m: int
) -> FamilyAudit:
    size = len(family.keys)
    cell = ((group[:, None] + 1) * m + np.arange(m)).ravel()
    rows, positives, expected, variance = (
        np.bincount(cell, sums.ravel(), (size + 1) * m).reshape(size + 1, m)[1:].astype(np.float64, copy=False)
        for sums in by_signature
    )
    return FamilyAudit(family, rows, positives, expected, variance)
