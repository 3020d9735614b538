"""Fusion: the calibrated probabilities of several models become one score, by their weighted mean in log-odds.

The order is: each model's score calibrated on its own, then `fuse`, then the fused score calibrated as the raw score of
a model of its own. So only the proportions of the weights matter here: an intercept, and how far apart the fused
scores lie, are found by the calibration that follows (Satopaa et al., "Combining multiple probability predictions
using a simple logit model", International Journal of Forecasting 30, 2014, equation 2, has both in one step).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from stream_calib.calibration.grid import log_odds
from stream_calib.calibration.input_checks import checked_outcomes
from stream_calib.calibration.logistic import LogisticFit, fit_logistic
from stream_calib.calibration.rounding import round_significant
from stream_calib.errors import (
    ConfigurationError,
    FitError,
    LengthMismatchError,
    OneClassError,
    ScoreRangeError,
)

_SMALL_RIDGE = 1e-6
"""On every weight: keeps their sum finite where the classes are separated."""


@dataclass(frozen=True, slots=True)
class FusionWeights:
    """Weights (m,) of m models, 0 or more, of sum 1.

    `standard_errors` (m,): None where a weight is held at 0, or was not fitted. `rows`: complete rows of the fit.
    """

    weights: tuple[float, ...]
    standard_errors: tuple[float | None, ...]
    rows: int

    @classmethod
    def given(cls, weights: Sequence[float]) -> FusionWeights:
        """Weights in these proportions. Raises ConfigurationError unless finite, 0 or more, and not all 0."""
        proportions = np.asarray(weights, dtype=np.float64)
        if proportions.ndim != 1 or not np.isfinite(proportions).all() or (proportions < 0).any():
            raise ConfigurationError(f"fusion weights {weights}; give one finite number a model, 0 or more")
        if not proportions.any():
            raise ConfigurationError(f"fusion weights {weights}; at least one model needs a weight above 0")
        return cls(tuple(_shares(proportions)), (None,) * len(proportions), 0)

    @classmethod
    def equal(cls, models: int) -> FusionWeights:
        """The plain mean of so many models. Raises ConfigurationError for none."""
        return cls.given([1.0] * models)


def fuse(probabilities: ArrayLike, weights: FusionWeights) -> NDArray[np.float64]:
    """Fused scores (n,) in (0, 1) of calibrated probabilities (n, m), one column a model.

    expit of the mean of the models' log-odds by weight; log-odds count within -10 and 10, as everywhere on the grid.
    NaN says that a model has no score for the row: the mean is then that of the models that have one. Where no model
    with a weight above 0 has one, the fused score is NaN. The calibration that follows cannot tell which scores were
    missing; where that is frequent, give it as a group attribute. The same row has the same bits in every batch.
    Raises LengthMismatchError, ScoreRangeError (infinite ones too), FitError (shape or type).
    """
    columns = _checked_columns(probabilities)
    if len(columns) != len(weights.weights):
        raise LengthMismatchError(f"probabilities of {len(columns)} models, {len(weights.weights)} weights")
    total, present = np.zeros(len(columns[0])), np.zeros(len(columns[0]))
    for column, weight in zip(columns, weights.weights, strict=True):
        missing = np.isnan(column)
        total += np.where(missing, 0.0, weight * log_odds(column))
        present += np.where(missing, 0.0, weight)
    # 0 / 0 is the NaN that is promised.
    with np.errstate(invalid="ignore"):
        return np.asarray(expit(total / present), dtype=np.float64)


def fit_fusion(
    probabilities: ArrayLike, labels: ArrayLike, sample_weight: ArrayLike | None = None, *, ridge: float = 20.0
) -> FusionWeights:
    """Weights fitted by logistic regression of the label on the models' calibrated log-odds, with an intercept.

    `probabilities` (n, m), NaN where a model has no score: such rows are left out. `labels` (n,) of 0 and 1,
    `sample_weight` (n,) >= 0, one over the probability with which a row was kept. The rows must be others than those
    that the models' calibrators were fitted to.

    Weights are 0 or more: each model's calibrated probability speaks for the outcome, so a negative weight is either
    noise between models that say the same or a correction that fails when one of them drifts, and the fused score would
    fall where a model's probability rises. `ridge` / 2 x the sum of squared distances of the weights from their mean is
    added to the log-loss, so models that cannot be told apart get equal weights; 20, as for offsets, is worth 160 or
    more rows on which two models differ by 1 in log-odds. Then the weights are scaled to sum 1.

    Standard errors: sandwich estimate for the weights above 0 (White, "Maximum likelihood estimation of misspecified
    models", Econometrica 50, 1982, theorem 3.2), with the ridge counted among the observations, so that weights that
    the data leave open have a large error; carried to the scaled weights by the delta method. Rows count as
    independent, weights held at 0 as known.

    Raises FitError where no model's probability speaks for the outcome, or for shapes and types, NonFiniteInputError,
    ScoreRangeError, LengthMismatchError, WeightError, OneClassError; ConfigurationError for a negative ridge.
    """
    if not (np.isfinite(ridge) and ridge >= 0):
        raise ConfigurationError(f"ridge = {ridge}; it must be 0 or more")
    columns, label, weight = _complete_rows(probabilities, labels, sample_weight)
    models = len(columns)
    features = [log_odds(column) for column in columns]
    features.append(np.ones(len(label)))
    penalty = np.zeros((models + 1, models + 1))
    penalty[:models, :models] = ridge * (np.eye(models) - 1 / models) + _SMALL_RIDGE * np.eye(models)
    fit = fit_logistic(features, weight, weight * label, penalty=penalty, at_least_0=[True] * models + [False])
    raw = fit.coefficients[:models]
    if not raw.any():
        raise FitError("no model's probability speaks for the outcome; check that labels and models belong together")
    errors = _standard_errors(fit, penalty, features, label, weight)
    return FusionWeights(tuple(_shares(raw)), tuple(errors), len(label))


def _shares(proportions: NDArray[np.float64]) -> list[float]:
    shares: list[float] = round_significant(proportions / proportions.sum()).tolist()
    return shares


def _standard_errors(
    fit: LogisticFit,
    penalty: NDArray[np.float64],
    features: Sequence[NDArray[np.float64]],
    label: NDArray[np.float64],
    weight: NDArray[np.float64],
) -> list[float | None]:
    """Of the scaled weights (m,)."""
    models = len(features) - 1
    total = np.zeros(len(label))
    for column, coefficient in zip(features, fit.coefficients.tolist(), strict=True):
        total += coefficient * column
    free = np.flatnonzero(~fit.held)
    residual = weight * (label - expit(total))
    scores = [residual * features[i] for i in free.tolist()]
    spread = np.array([[(a * b).sum() for b in scores] for a in scores]) + penalty[np.ix_(free, free)]
    bread = np.linalg.inv(fit.information[np.ix_(free, free)])
    covariance = np.zeros((models + 1, models + 1))
    covariance[np.ix_(free, free)] = bread @ spread @ bread
    raw = fit.coefficients[:models]
    # d (w_i / S) / d w_j = (1[i = j] - w_i / S) / S with S the sum.
    slope = (np.eye(models) - raw[:, None] / raw.sum()) / raw.sum()
    variance = np.diagonal(slope @ covariance[:models, :models] @ slope.T)
    errors = round_significant(np.sqrt(np.maximum(variance, 0.0))).tolist()
    return [None if held else error for held, error in zip(fit.held[:models].tolist(), errors, strict=True)]


def _checked_columns(probabilities: ArrayLike) -> list[NDArray[np.float64]]:
    """The m columns (n,). Raises FitError, ScoreRangeError."""
    given = np.asarray(probabilities)
    if given.dtype.kind not in "biuf" or given.ndim != 2 or not given.shape[1]:
        raise FitError(
            f"probabilities have shape {given.shape} and dtype {given.dtype}; give numbers, (rows, models), NaN where "
            "a model has no score"
        )
    values = given.astype(np.float64, copy=False)
    outside = (values < 0) | (values > 1)
    if outside.any():
        raise ScoreRangeError(
            f"{np.count_nonzero(outside)} probabilities lie outside [0, 1], the first is {values[outside][0]}; "
            "fuse calibrated probabilities, not log-odds"
        )
    return [np.ascontiguousarray(values[:, model]) for model in range(values.shape[1])]


def _complete_rows(
    probabilities: ArrayLike, labels: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[list[NDArray[np.float64]], NDArray[np.float64], NDArray[np.float64]]:
    """Columns, labels and weights (k,) of the rows on which every model has a score and that have a weight above 0."""
    columns = _checked_columns(probabilities)
    positive, weights = checked_outcomes(len(columns[0]), labels, sample_weight)
    weight = np.ones(len(positive)) if weights is None else weights
    complete = weight > 0
    for column in columns:
        complete &= ~np.isnan(column)
    kept = positive[complete].astype(np.float64)
    if not 0 < kept.sum() < len(kept):
        raise OneClassError(
            f"{len(kept)} of {len(positive)} rows have a score of every model, {kept.sum():g} of them are positive; "
            "both classes are needed"
        )
    return [column[complete] for column in columns], kept, weight[complete]
