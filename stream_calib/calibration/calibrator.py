"""What every one-feature calibrator is: a scikit-learn estimator that can also be fitted from counts."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin

from stream_calib.calibration.fit_input import Counts, counts_of_cells, counts_of_rows
from stream_calib.calibration.maps.base_map import BaseMap

if TYPE_CHECKING:
    from sklearn.utils import Tags
    from typing_extensions import Self


class Calibrator(RegressorMixin, TransformerMixin, BaseEstimator, metaclass=ABCMeta):  # type: ignore[misc]  # scikit-learn ships no types
    """Maps scores in [0, 1] to probabilities. Subclasses: `fit_counts`, `predict` and `base_map`."""

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fits to rows: scores (n,) or (n, 1) in [0, 1], labels (n,) of 0 and 1, weights (n,) >= 0.

        Rows of weight 0 change nothing. Raises the FitError family: LengthMismatchError, NonFiniteInputError,
        ScoreRangeError, WeightError, OneClassError, TooFewRowsError, TooFewPositivesError; FitError for other labels
        or shapes; ConfigurationError for a parameter that makes no sense.
        """
        return self.fit_counts(counts_of_rows(X, y, sample_weight))

    def fit_cells(self, labelled: ArrayLike, positives: ArrayLike) -> Self:
        """Fits to counts per grid bin, (402,) each, whole or decayed by age; a bin's score is that of its centre.

        Raises as `fit`; FitError where positives exceed labelled.
        """
        return self.fit_counts(counts_of_cells(labelled, positives))

    @abstractmethod
    def fit_counts(self, counts: Counts) -> Self:
        """Fits to checked counts by score."""

    @abstractmethod
    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Calibrated probabilities (n,) of scores (n,) or (n, 1). Raises NonFiniteInputError, ScoreRangeError."""

    @abstractmethod
    def base_map(self) -> BaseMap:
        """The fitted map as a snapshot holds it: equal to `predict` at every edge of the grid."""

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """`predict`, for pipelines: (n, 1)."""
        return self.predict(X)[:, None]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # One feature, as (n,) or as a column.
        tags.input_tags.one_d_array = True
        return tags
