"""scikit-learn's own estimator checks, for calibrators of one score."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from scipy.special import expit
from sklearn.utils.estimator_checks import check_estimator

from stream_calib.calibration.calibrator import Calibrator


class OnTheChecksData:
    """Put before a calibrator among the bases of a class, it lets the calibrator read what the checks make up.

    The checks draw several features from the whole line, and outcomes of all kinds. This takes the first feature,
    squashed into (0, 1), and whether the outcome is above the middle of its range; all else (cloning, pickling,
    weights, order of rows, read-only input ...) is asked of the calibrator's own code.
    """

    def fit(self, X: ArrayLike, y: ArrayLike | None, sample_weight: ArrayLike | None = None) -> Any:
        outcome = y if y is None else np.asarray(y)
        if outcome is not None and outcome.dtype.kind in "iuf" and outcome.ndim == 1 and np.isfinite(outcome).all():
            outcome = outcome > (outcome.min() + outcome.max()) / 2
        return super().fit(_first_feature(X), outcome, sample_weight)  # type: ignore[misc]  # the calibrator's

    def predict(self, X: ArrayLike) -> Any:
        return super().predict(_first_feature(X))  # type: ignore[misc]  # the calibrator's

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]  # the calibrator's
        # With this tag the checks would slice their data to (n,), and then fail over it themselves.
        tags.input_tags.one_d_array = False
        return tags


def _first_feature(X: Any) -> Any:
    if issparse(X):
        return X
    values = np.asarray(X)
    if values.dtype.kind not in "iuf" or not values.ndim or 0 in values.shape[1:]:
        return X
    first = (values[:, 0] if values.ndim == 2 else values).astype(np.float64)
    return np.where(np.isfinite(first), expit(first), first)


_ONE_FEATURE = "a calibrator has one feature, a score, by definition; it may come as (n,)"
DOES_NOT_APPLY = {
    "check_n_features_in": _ONE_FEATURE,
    "check_n_features_in_after_fitting": _ONE_FEATURE,
    "check_transformer_general": f"its last part does not: {_ONE_FEATURE}",
    "check_fit2d_predict1d": _ONE_FEATURE,
    "check_fit1d": _ONE_FEATURE,
    "check_estimators_empty_data_messages": "no feature is the wrong shape, and the error says so in its own words",
    "check_fit2d_1sample": "one row is too few, and the error says so in its own words",
    "check_dtype_object": "text and None in arrays of objects are refused, not guessed at",
    "check_supervised_y_2d": "labels are (n,): a column of labels is refused, not guessed at",
    "check_regressors_train": "asks for R^2 > .5 of a real-valued outcome; here the outcome is 0 or 1",
}
"""Name of each check that a calibrator of one score cannot pass, and why."""


def check(estimator: Calibrator) -> None:
    """Asserts that all checks pass but those that do not apply, and that these do fail."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, on_fail=None, on_skip=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert {name: error for name, error in failed.items() if name not in DOES_NOT_APPLY} == {}
    assert {name for name in DOES_NOT_APPLY if name not in failed} == set()
    assert sum(r["status"] == "passed" for r in results) >= 45
