"""Rows with attributes, checked and brought into one form, and counted into cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stream_calib.calibration.grid import N_BINS, locate
from stream_calib.calibration.groups import Signature
from stream_calib.calibration.input_checks import checked_outcomes, checked_scores
from stream_calib.calibration.labelled_cells import LabelledCells
from stream_calib.errors import FitError, LengthMismatchError


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
        attributes: Mapping[str, Sequence[str]],
        sample_weight: ArrayLike | None,
    ) -> LabelledRows:
        """Raises LengthMismatchError, NonFiniteInputError, ScoreRangeError, WeightError, FitError (labels, text)."""
        score = checked_scores(scores)
        positive, weight = checked_outcomes(len(score), labels, sample_weight)
        weight = np.ones(len(score)) if weight is None else weight
        signatures, signature = signatures_of(attributes, len(score))
        return cls(score, positive.astype(np.float64), weight, signature, signatures)

    def cells(self, chosen: NDArray[np.bool_]) -> LabelledCells:
        """The chosen rows as counts by (signature, grid bin), over all signatures."""
        signature, weight = self.signature[chosen], self.weight[chosen]
        key, place = np.unique(signature * N_BINS + locate(self.score[chosen])[0], return_inverse=True)
        labelled, positives = (
            np.bincount(place.reshape(-1), column, len(key)).astype(np.float64, copy=False)
            for column in (weight, weight * self.label[chosen])
        )
        # Sums of weights, taken apart, may differ in their last digit where all rows are positive.
        positives = np.minimum(positives, labelled)
        return LabelledCells(self.signatures, key // N_BINS, key % N_BINS, labelled, positives)


def signatures_of(attributes: Mapping[str, Sequence[str]], n: int) -> tuple[list[Signature], NDArray[np.intp]]:
    """The distinct signatures, sorted, and each row's place among them (n,), from columns of text (n,) each.

    Raises LengthMismatchError for columns of other lengths, FitError for values that are no text.
    """
    place = np.zeros(n, dtype=np.int64)
    texts: list[list[str]] = []
    for name, column in attributes.items():
        values = column.tolist() if isinstance(column, np.ndarray) else column
        if len(values) != n:
            raise LengthMismatchError(f"attribute {name!r} has {len(values)} values for {n} rows; give one a row")
        code: dict[str, int] = {}
        codes = np.fromiter((code.setdefault(value, len(code)) for value in values), dtype=np.int64, count=n)
        other = [value for value in code if not isinstance(value, str)]
        if other:
            raise FitError(f"attribute {name!r} has the value {other[0]!r}; values are text, turn others into text")
        # Numbered anew after each attribute, so that many large ones cannot overflow the product of their sizes.
        by_text = np.argsort(np.array(sorted(range(len(code)), key=list(code).__getitem__), dtype=np.int64))
        used, place = np.unique(place * len(code) + by_text[codes], return_inverse=True)
        place = place.reshape(-1).astype(np.int64)
        before, own = used // max(len(code), 1), used % max(len(code), 1)
        in_order = sorted(code)
        column_of = [in_order[i] for i in own.tolist()]
        texts = [[text[i] for i in before.tolist()] for text in texts] + [column_of]
    if not texts:
        return [()] if n else [], place.astype(np.intp)
    return list(zip(*texts, strict=True)), place.astype(np.intp)
