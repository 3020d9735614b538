"""Rows with attributes, checked and brought into one form, and counted into cells."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stream_calib.calibration.grid import locate
from stream_calib.calibration.groups import Signature
from stream_calib.calibration.input_checks import checked_outcomes, checked_scores
from stream_calib.calibration.labelled_cells import LabelledCells
from stream_calib.errors import FitError, LengthMismatchError

Columns: TypeAlias = Mapping[str, Sequence[str] | NDArray[Any]]
"""Attributes by name: columns (n,) of text, as lists, tuples, or numpy arrays of text or of objects that are text."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelledRows:
    """Columns (n,): `score` in [0, 1], `label` 0.0 or 1.0, `weight` >= 0 (1.0 where none was given), `signature` place
    in `signatures`, which are sorted."""

    score: NDArray[np.float64]
    label: NDArray[np.float64]
    weight: NDArray[np.float64]
    signature: NDArray[np.intp]
    signatures: Sequence[Signature]

    @classmethod
    def checked(
        cls,
        scores: ArrayLike,
        labels: ArrayLike,
        attributes: Columns,
        sample_weight: ArrayLike | None,
    ) -> LabelledRows:
        """Raises LengthMismatchError, NonFiniteInputError, ScoreRangeError, WeightError; FitError (labels, attributes
        of another kind)."""
        score = checked_scores(scores)
        positive, weight = checked_outcomes(len(score), labels, sample_weight)
        weight = np.ones(len(score)) if weight is None else weight
        signatures, signature = signatures_of(attributes, len(score))
        return cls(score, positive.astype(np.float64), weight, signature, signatures)

    def cells(self, chosen: NDArray[np.bool_]) -> LabelledCells:
        """The chosen rows as counts by (signature, grid bin), over all signatures."""
        weight, grid_bin = self.weight[chosen], locate(self.score[chosen])[0]
        rows = LabelledCells(self.signatures, self.signature[chosen], grid_bin, weight, weight * self.label[chosen])
        cells = rows.merged()
        # Sums of weights, taken apart, may differ in their last digit where all rows are positive.
        return replace(cells, positives=np.minimum(cells.positives, cells.labelled))


def checked_attributes(attributes: Columns) -> Columns:
    """The columns by name, from a mapping or whatever has `keys` as one, like a data frame. Raises FitError."""
    if not hasattr(attributes, "keys"):
        raise FitError(f"attributes are a {type(attributes).__name__}; give columns by name: {_EXAMPLE}")
    columns = dict(attributes)
    unnamed = [name for name in columns if not isinstance(name, str)]
    if unnamed:
        raise FitError(f"an attribute has the name {unnamed[0]!r}; names are text: {_EXAMPLE}")
    return columns


def signatures_of(attributes: Columns, n: int) -> tuple[list[Signature], NDArray[np.intp]]:
    """The distinct signatures, sorted, and each row's place among them (n,), from columns of text (n,) each.

    Raises LengthMismatchError for columns of other lengths, FitError for columns of another kind and for values that
    are no text.
    """
    place = np.zeros(n, dtype=np.int64)
    texts: list[list[str]] = []
    for name, column in attributes.items():
        code, codes = _numbered(name, _values(name, column), n)
        # Numbered anew after each attribute, so that many large ones cannot overflow the product of their sizes.
        in_order = sorted(code)
        rank = {text: i for i, text in enumerate(in_order)}
        by_text = np.array([rank[text] for text in code], dtype=np.int64)
        used, place = np.unique(place * len(code) + by_text[codes], return_inverse=True)
        place = place.reshape(-1).astype(np.int64)
        before, own = used // max(len(code), 1), used % max(len(code), 1)
        column_of = [in_order[i] for i in own.tolist()]
        texts = [[text[i] for i in before.tolist()] for text in texts] + [column_of]
    if not texts:
        return [()] if n else [], place.astype(np.intp)
    return list(zip(*texts, strict=True)), place.astype(np.intp)


_EXAMPLE = '{"region": ["north", "south", ...], "device": [...]}'


def _values(name: str, column: Any) -> Collection[Any]:
    """The column's values, in order."""
    if isinstance(column, str | bytes | Mapping | Set) or not isinstance(column, Collection):
        kind = type(column).__name__
        raise FitError(f"attribute {name!r} is a {kind}; give a list or an array with the text of each row")
    # Data frames' columns have a shape too.
    shape: tuple[int, ...] = column.shape if hasattr(column, "shape") else (len(column),)
    if len(shape) != 1:
        raise FitError(f"attribute {name!r} has shape {shape}; give each column (n,) under a name of its own")
    values: Collection[Any] = column.tolist() if isinstance(column, np.ndarray) else column
    return values


def _numbered(name: str, values: Collection[Any], n: int) -> tuple[dict[str, int], NDArray[np.int64]]:
    """A number for each value, in order of first appearance, and the number of each row (n,)."""
    if len(values) != n:
        raise LengthMismatchError(f"attribute {name!r} has {len(values)} values for {n} rows; give one a row")
    code: dict[str, int] = {}
    try:
        codes = np.fromiter((code.setdefault(value, len(code)) for value in values), dtype=np.int64, count=n)
        other = [value for value in code if not isinstance(value, str)]
    except TypeError:
        # Values that have no hash, as lists, are no text either.
        other = [value for value in values if not isinstance(value, str)]
    if other:
        raise FitError(f"attribute {name!r} has the value {other[0]!r}; values are text, turn others into text")
    return code, codes
