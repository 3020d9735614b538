"""CORP reliability diagram and score decomposition: isotonic regression in place of bins.

Dimitriadis, Gneiting, Jordan 2021 (PNAS 118, e2016191118): consistent, optimally binned, reproducible; the blocks come
from pooling adjacent violators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stream_calib.calibration.metrics.evaluated import Evaluated
from stream_calib.calibration.metrics.isotonic_band import IsotonicBand, isotonic_band
from stream_calib.calibration.metrics.log_loss import log_loss_sums
from stream_calib.errors import ConfigurationError

CorpScore = Literal["brier", "log_loss"]


@dataclass(frozen=True, slots=True, eq=False)
class CorpCurve:
    """Blocks of probabilities that share one recalibrated value, in order; columns (b,) float64.

    `smallest`, `largest`: probabilities of the block; the diagram joins (smallest, rate) and (largest, rate) of each.
    `rate`: recalibrated probability, increasing; `labelled`: weight; `band`: confidence band of the true curve.
    """

    smallest: NDArray[np.float64]
    largest: NDArray[np.float64]
    rate: NDArray[np.float64]
    labelled: NDArray[np.float64]
    band: IsotonicBand


@dataclass(frozen=True, slots=True)
class CorpDecomposition:
    """score = miscalibration - discrimination + uncertainty (Dimitriadis et al. 2021, MCB, DSC and UNC), all >= 0.

    `miscalibration`: what recalibration by isotonic regression, on these very labels, takes off the score;
    `discrimination`: what the recalibrated probabilities gain over the base rate; `uncertainty`: score of the base
    rate.
    """

    miscalibration: float
    discrimination: float
    uncertainty: float


def corp_curve(
    label: ArrayLike,
    probability: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    confidence: float = 0.95,
    overdispersion: float = 1.0,
) -> CorpCurve:
    """The CORP reliability diagram, with a confidence band that holds for all probabilities at once.

    The band is one of the true curve P(y = 1 | p) and assumes that the curve increases (`isotonic_band`); it is not the
    consistency band about the diagonal. Shapes and errors: `Evaluated.of_rows`; ConfigurationError for `confidence`
    outside (0, 1) or `overdispersion` below 1.
    """
    return _curve(Evaluated.of_rows(label, probability, weight), confidence, overdispersion)


def corp_curve_of_counts(
    value: ArrayLike,
    labelled: ArrayLike,
    positives: ArrayLike,
    *,
    confidence: float = 0.95,
    overdispersion: float = 1.0,
) -> CorpCurve:
    """The same from counts (k,) behind each probability (k,). Errors: `Evaluated.of_counts`."""
    return _curve(Evaluated.of_counts(value, labelled, positives), confidence, overdispersion)


def corp_decomposition(
    label: ArrayLike, probability: ArrayLike, weight: ArrayLike | None = None, *, score: CorpScore = "brier"
) -> CorpDecomposition:
    """Parts of the mean Brier score or log-loss (clipped as `log_loss`). Shapes and errors: `Evaluated.of_rows`."""
    return _parts(Evaluated.of_rows(label, probability, weight), score)


def corp_decomposition_of_counts(
    value: ArrayLike, labelled: ArrayLike, positives: ArrayLike, *, score: CorpScore = "brier"
) -> CorpDecomposition:
    """The same from counts (k,) behind each probability (k,). Errors: `Evaluated.of_counts`."""
    return _parts(Evaluated.of_counts(value, labelled, positives), score)


def _curve(data: Evaluated, confidence: float, overdispersion: float) -> CorpCurve:
    value, labelled, _, recalibrated = _recalibrated(data)
    starts = np.flatnonzero(np.diff(recalibrated, prepend=-1.0) != 0)
    return CorpCurve(
        smallest=value[starts],
        largest=value[np.append(starts[1:], len(value)) - 1],
        rate=recalibrated[starts],
        labelled=np.add.reduceat(labelled, starts),
        band=isotonic_band(data, confidence, overdispersion),
    )


def _parts(data: Evaluated, score: CorpScore) -> CorpDecomposition:
    value, labelled, positives, recalibrated = _recalibrated(data)

    def mean(p: NDArray[np.float64]) -> float:
        if score == "log_loss":
            return float(log_loss_sums(p, labelled, positives).sum()) / data.total
        return float((positives * (1 - p) ** 2 + (labelled - positives) * p**2).sum()) / data.total

    if score not in ("brier", "log_loss"):
        raise ConfigurationError(f"score is {score!r}; give 'brier' or 'log_loss'")
    best, uncertainty = mean(recalibrated), mean(np.full(len(value), data.base_rate))
    return CorpDecomposition(mean(value) - best, uncertainty - best, uncertainty)


def _recalibrated(data: Evaluated) -> tuple[NDArray[np.float64], ...]:
    """Distinct probabilities, their weight, that of their positives, and their recalibrated values."""
    # Here, because it takes a tenth of a second to import, and every role imports metrics.
    from scipy.optimize import isotonic_regression

    value, tie = np.unique(data.value, return_inverse=True)
    labelled = np.bincount(tie, data.labelled, len(value)).astype(np.float64, copy=False)
    positives = np.bincount(tie, data.positives, len(value)).astype(np.float64, copy=False)
    return value, labelled, positives, isotonic_regression(positives / labelled, weights=labelled).x
