"""What metrics of groups are given: evaluated entries with the group of each in every family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stream_calib.calibration.metrics.evaluated import Evaluated
from stream_calib.errors import FitError, LengthMismatchError

EVERYTHING = -1
"""Number of the family that every metric of groups adds: one group, numbered 0, of all entries."""


@dataclass(frozen=True, slots=True, eq=False)
class EvaluatedGroups:
    """Entries (k,) and, for each of the given families, the group (k,) intp of each entry, -1 where it is in none."""

    data: Evaluated
    families: tuple[NDArray[np.intp], ...]

    @classmethod
    def of_rows(
        cls, label: ArrayLike, probability: ArrayLike, groups: Sequence[ArrayLike], weight: ArrayLike | None
    ) -> EvaluatedGroups:
        """From rows as `Evaluated.of_rows` has them; `groups`: a column (n,) of integers for each family.

        Families are attributes, intersections or predicates (`groups.Family.group_of`); a negative number is no group.
        Raises as `Evaluated.of_rows`; LengthMismatchError, FitError for columns of other lengths or types.
        """
        data = Evaluated.of_rows(label, probability, weight)
        used = None if weight is None else np.asarray(weight) > 0
        return cls(data, _columns(groups, len(np.asarray(probability)), used))

    @classmethod
    def of_counts(
        cls,
        value: ArrayLike,
        labelled: ArrayLike,
        positives: ArrayLike,
        groups: Sequence[ArrayLike],
        squared: ArrayLike | None = None,
    ) -> EvaluatedGroups:
        """From counts as `Evaluated.of_counts` has them; `groups`: a column (k,) of integers for each family.

        From `LabelledCells`: family.group_of[cells.signature]. Raises as `of_rows`.
        """
        data = Evaluated.of_counts(value, labelled, positives, squared)
        n = np.asarray(labelled)
        return cls(data, _columns(groups, len(n), n > 0))

    def numbered(self) -> list[tuple[int, NDArray[np.intp]]]:
        """(number of the family, groups (k,)) of everything and of each family."""
        everything = np.zeros(len(self.data.value), dtype=np.intp)
        return [(EVERYTHING, everything), *enumerate(self.families)]


def _columns(groups: Sequence[ArrayLike], length: int, used: NDArray[np.bool_] | None) -> tuple[NDArray[np.intp], ...]:
    if isinstance(groups, Mapping) or (isinstance(groups, np.ndarray) and groups.ndim == 1 and len(groups)):
        raise FitError("groups are a list with a column of numbers for each family, as [region, device]")
    columns = []
    for i, group in enumerate(groups):
        column = np.asarray(group)
        if column.shape != (length,):
            raise LengthMismatchError(f"groups of family {i} have shape {column.shape}; {(length,)} is needed")
        if column.dtype.kind not in "iu":
            raise FitError(
                f"groups of family {i} have dtype {column.dtype}; number them, with -1 for none:"
                " np.unique(values, return_inverse=True)[1]"
            )
        whole = column.astype(np.intp, copy=False)
        columns.append(whole if used is None else whole[used])
    return tuple(columns)
