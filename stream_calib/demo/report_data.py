"""What the report shows, as plain data, and how its series are computed from labelled rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from stream_calib.calibration.metrics import log_loss_sums
from stream_calib.demo.figures import DemoFigures
from stream_calib.demo.flights import DAY_MS, DAY_START_MS, day_index

RELIABILITY_BINS = 15


@dataclass(frozen=True, slots=True)
class Reliability:
    """k non-empty bins of equal width in the probability. All columns are (k,)."""

    mean_probability: NDArray[np.float64]
    rate: NDArray[np.float64]
    """Share of positives."""
    rate_low: NDArray[np.float64]
    """Clopper-Pearson intervals of the rates; with 95 % all of them hold."""
    rate_high: NDArray[np.float64]
    n: NDArray[np.int64]
    lower_edge: NDArray[np.float64]
    """The bin's range is [lower_edge, lower_edge + 1 / RELIABILITY_BINS)."""


@dataclass(frozen=True, slots=True)
class DailySeries:
    """One row a day that has labelled rows. All columns are (k,)."""

    day_start_ms: NDArray[np.int64]
    """10:00 UTC, epoch milliseconds."""
    n: NDArray[np.int64]
    raw_log_loss: NDArray[np.float64]
    calibrated_log_loss: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class GroupResidual:
    """How far one group's mean probability lies from its share of positives."""

    family: str
    """The attribute that the group is a value of."""
    name: str
    n: int
    rate: float
    raw: float
    """Mean raw score minus rate."""
    calibrated: float
    """Mean calibrated probability minus rate."""


@dataclass(frozen=True, slots=True)
class PsiSeries:
    """Population stability index of closed panes. All columns are (k,)."""

    time_ms: NDArray[np.int64]
    """End of the window."""
    psi: NDArray[np.float64]
    """NaN where undefined."""
    noise_floor: NDArray[np.float64]
    """What no change at all would show."""


@dataclass(frozen=True, slots=True)
class RefitEntry:
    """One settled refit request."""

    time_ms: int
    """Event time: end of the last pane that was decided when it was asked for."""
    kind: str
    """structure or level."""
    reason: str
    """Why it was asked for: bootstrap, age, psi, ..."""
    outcome: str
    """published, refused, failed, held or superseded."""
    version: str
    """The snapshot version that was published; empty otherwise."""
    detail: str
    """What the gate said, or why there was nothing for it to judge."""
    refused_for: Sequence[str] = ()
    """Codes of the gate's refusal, each once."""
    gain: float | None = None
    """Mean log-loss that the candidate saved a labelled row on the gate's buckets; None where none was judged."""
    gain_lower: float | None = None
    """Its lower bound."""


@dataclass(frozen=True, slots=True)
class AlertEntry:
    opened_ms: int
    closed_ms: int | None
    """None: still open at the end."""
    kind: str
    severity: str
    message: str


@dataclass(frozen=True, slots=True)
class ReportData:
    model: str
    """Model key as shown."""
    figures: DemoFigures
    first_ms: int
    """First and last event time of the scores, epoch milliseconds."""
    last_ms: int
    evaluated_from_ms: int
    """Start of the first day that the figures count."""
    evaluated_rows: int
    raw_reliability: Reliability
    calibrated_reliability: Reliability
    daily: DailySeries
    groups: Sequence[GroupResidual]
    psi: PsiSeries
    psi_threshold: float
    refits: Sequence[RefitEntry]
    alerts: Sequence[AlertEntry]
    score_classes: Mapping[str, int]
    """Outcome class -> number of score events."""
    label_classes: Mapping[str, int]
    """Outcome class -> number of label events."""
    snapshot: str
    """Version served at the end."""


def reliability(probability: NDArray[np.float64], label: NDArray[np.int8]) -> Reliability:
    """Reliability of probabilities (n,) in [0, 1] against labels (n,) 0/1; Clopper and Pearson 1934."""
    bins = np.minimum((probability * RELIABILITY_BINS).astype(np.intp), RELIABILITY_BINS - 1)
    n = np.bincount(bins, minlength=RELIABILITY_BINS)
    positives = np.bincount(bins, weights=label, minlength=RELIABILITY_BINS)
    total = np.bincount(bins, weights=probability, minlength=RELIABILITY_BINS)
    used = np.flatnonzero(n)
    n, positives, total = n[used], positives[used], total[used]
    negatives = n - positives
    tail = 0.05 / (2 * len(used))
    with np.errstate(invalid="ignore"):
        low = np.where(positives == 0, 0.0, beta.ppf(tail, positives, negatives + 1))
        high = np.where(negatives == 0, 1.0, beta.ppf(1 - tail, positives + 1, negatives))
    return Reliability(total / n, positives / n, low, high, n, used / RELIABILITY_BINS)


def daily_log_loss(
    time_ms: NDArray[np.int64],
    label: NDArray[np.int8],
    raw: NDArray[np.float64],
    calibrated: NDArray[np.float64],
) -> DailySeries:
    """Mean log-loss a day (by the event times of the scores) of n labelled rows; all arguments are (n,)."""
    days, row_day = np.unique(day_index(time_ms), return_inverse=True)
    n = np.bincount(row_day)

    def mean_loss(probability: NDArray[np.float64]) -> NDArray[np.float64]:
        loss = log_loss_sums(probability, np.ones(len(label)), label.astype(np.float64))
        return np.bincount(row_day, weights=loss) / n

    return DailySeries(days * DAY_MS + DAY_START_MS, n, mean_loss(raw), mean_loss(calibrated))


def group_residuals(
    family: str,
    code: NDArray[np.uint8],
    names: Sequence[str],
    label: NDArray[np.int8],
    raw: NDArray[np.float64],
    calibrated: NDArray[np.float64],
) -> list[GroupResidual]:
    """One entry for each value of the attribute `family` that has rows.

    `code` (n,) indexes `names`; label, raw and calibrated are (n,).
    """
    n = np.bincount(code, minlength=len(names))
    sums = [np.bincount(code, weights=column, minlength=len(names)) for column in (label, raw, calibrated)]
    return [
        GroupResidual(family, names[g], int(n[g]), *(float(v) for v in (y / n[g], (r - y) / n[g], (c - y) / n[g])))
        for g, (y, r, c) in enumerate(zip(*sums, strict=True))
        if n[g]
    ]
