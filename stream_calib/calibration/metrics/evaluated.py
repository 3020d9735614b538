"""What every metric is given: probabilities with the weight of labelled rows and of positives behind them.

Every metric has two forms over one implementation: `name(label, probability, weight)` from rows, and
`name_of_counts(value, labelled, positives)` from the counts behind each probability, as cells have them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stream_calib.calibration.input_checks import checked_numbers, checked_outcomes
from stream_calib.errors import FitError, LengthMismatchError, NonFiniteInputError, ScoreRangeError, WeightError

LOG_LOSS_CLIP = 1e-6
"""Probabilities are kept within [1e-6, 1 - 1e-6] where a logarithm is taken, on both sides of every comparison, so that
one confident mistake does not decide it."""


@dataclass(frozen=True, slots=True, eq=False)
class Evaluated:
    """Columns of shape (k,) and dtype float64, without entries of weight 0; a row is an entry of its own.

    `value`: probabilities; `labelled`, `positives`: weight of labelled rows and of positives; `squared`: sum of the
    squared weights of the rows, from which the effective number of rows in a bin follows.
    """

    value: NDArray[np.float64]
    labelled: NDArray[np.float64]
    positives: NDArray[np.float64]
    squared: NDArray[np.float64]

    @classmethod
    def of_rows(cls, label: ArrayLike, probability: ArrayLike, weight: ArrayLike | None) -> Evaluated:
        """From labels (n,) of 0 and 1, probabilities (n,) in [0, 1], weights (n,) >= 0 or None (all 1).

        Raises LengthMismatchError, NonFiniteInputError, ScoreRangeError, WeightError; FitError for other labels,
        text or None, or no rows.
        """
        value = checked_numbers("probabilities", probability)
        positive, weights = checked_outcomes(len(value), label, weight)
        w = np.ones(len(value)) if weights is None else weights
        return cls._checked(value, w, w * positive, w * w)

    @classmethod
    def of_counts(
        cls, value: ArrayLike, labelled: ArrayLike, positives: ArrayLike, squared: ArrayLike | None = None
    ) -> Evaluated:
        """From probabilities (k,) and numbers of labelled rows and positives (k,) that have them; where rows have
        weights, these are by weight, and `squared` (k,) are the sums of the rows' squared weights.

        Raises LengthMismatchError, NonFiniteInputError, ScoreRangeError, WeightError; FitError where no rows are
        labelled, and for text or None.
        """
        n = checked_numbers("labelled", labelled)
        of_rows = n if squared is None else checked_numbers("squared weights", squared)
        return cls._checked(
            checked_numbers("probabilities", value), n, checked_numbers("positives", positives), of_rows
        )

    @classmethod
    def _checked(
        cls,
        value: NDArray[np.float64],
        labelled: NDArray[np.float64],
        positives: NDArray[np.float64],
        squared: NDArray[np.float64],
    ) -> Evaluated:
        if value.ndim != 1 or not value.shape == labelled.shape == positives.shape == squared.shape:
            shapes = f"probabilities {value.shape}, labels or labelled {labelled.shape}, positives {positives.shape}"
            shapes += "" if squared.shape == labelled.shape else f", squared weights {squared.shape}"
            raise LengthMismatchError(f"{shapes}: all need the same shape (n,)")
        for name, column in (
            ("probabilities", value),
            ("weights", labelled),
            ("positives", positives),
            ("squared weights", squared),
        ):
            if not np.isfinite(column).all():
                raise NonFiniteInputError(f"{name} hold NaN or infinity; leave those rows out")
        if ((value < 0) | (value > 1)).any():
            raise ScoreRangeError("probabilities must lie in [0, 1]; evaluate calibrated or raw scores, not log-odds")
        if (labelled < 0).any() or (positives < 0).any() or (positives > labelled).any():
            raise WeightError("weights must be 0 or more, and positives no more than labelled")
        if not len(value):
            raise FitError("there are no labelled rows to evaluate")
        used = labelled > 0
        if not used.any():
            raise WeightError("all weights, or numbers of labelled rows, are 0; there is nothing to evaluate")
        if used.all():
            return cls(value, labelled, positives, squared)
        return cls(value[used], labelled[used], positives[used], squared[used])

    @property
    def total(self) -> float:
        return float(self.labelled.sum())

    @property
    def base_rate(self) -> float:
        return float(self.positives.sum()) / self.total
