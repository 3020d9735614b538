"""scikit-learn's own estimator checks, for calibrators of one score.

The checks make up their data: matrices of several columns of any numbers, and targets of any numbers. `on_any_numbers`
makes of a calibrator one that reads such data as scores and labels, so that all that the checks ask besides (cloning,
pickling, weights, order of rows, read-only input ...) is asked of the calibrator's own code. NOT_APPLICABLE names the
checks that still cannot pass, each with its reason.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.utils.estimator_checks import check_estimator

from stream_calib.calibration.calibrator import Calibrator

NOT_APPLICABLE = {
    "check_n_features_in_after_fitting": "there is one score a row, nothing to count, so no n_features_in_",
    "check_n_features_in": "the same",
    "check_transformer_general": "asks that another number of columns be refused; any but one always is",
    "check_estimators_empty_data_messages": "no columns are refused as any number but one is, in other words",
    "check_fit1d": "asks that (n,) be refused; scores are mostly given so",
    "check_fit2d_predict1d": "the same",
    "check_dtype_object": "arrays of objects are refused: what is in them would have to be guessed at",
    "check_regressors_train": "asks for a good fit of the made-up target, which one squeezed column does not give",
    "check_supervised_y_2d": "a column of labels is refused, not flattened with a warning",
    "check_fit2d_1sample": "one row is refused with TooFewRowsError, in other words",
}
"""Name of each check that cannot pass, and why."""


def on_any_numbers(calibrator: type[Calibrator]) -> type[Calibrator]:
    """A subclass that reads the first column of a matrix, squeezed into [0, 1], and targets above .5
    (above the middle of their range, where .5 does not divide them) as 1."""

    def fit(self: Any, X: Any, y: Any, sample_weight: Any = None) -> Any:
        return calibrator.fit(self, _scores(X), _labels(y), sample_weight)

    def predict(self: Any, X: Any) -> Any:
        return calibrator.predict(self, _scores(X))

    def tags(self: Any) -> Any:
        told = calibrator.__sklearn_tags__(self)
        # The checks would hand over (n,), and then index columns.
        told.input_tags.one_d_array = False
        return told

    name = f"{calibrator.__name__}OnAnyNumbers"
    made = type(name, (calibrator,), {"fit": fit, "predict": predict, "__sklearn_tags__": tags, "__module__": __name__})
    # Where pickle looks for it.
    globals()[name] = made
    return made


def failed_checks(calibrator: type[Calibrator]) -> dict[str, str]:
    """Of the checks that fail, name and message."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(on_any_numbers(calibrator)(), on_fail=None, on_skip=None)
    return {r["check_name"]: str(r["exception"]) for r in results if r["status"] == "failed"}


def _scores(given: Any) -> Any:
    """Real numbers as scores (n,), of a matrix its first column; anything else as it is. Infinite ones become NaN."""
    values = np.asarray(given)
    if values.dtype.kind not in "biuf" or values.ndim not in (1, 2) or not values.size:
        return given
    column = (values[:, 0] if values.ndim == 2 else values).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return 0.5 + column / (2 * (1 + np.abs(column)))


def _labels(given: Any) -> Any:
    """Finite targets (n,) of more than one value as labels; anything else as it is."""
    values = np.asarray(given)
    if values.dtype.kind not in "biuf" or values.ndim != 1 or not values.size or not np.isfinite(values).all():
        return given
    if values.min() == values.max():
        return values
    return values > (0.5 if values.min() <= 0.5 < values.max() else (values.min() + values.max()) / 2)
