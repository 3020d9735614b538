"""The gate: whether one candidate may replace what is served, judged on unit buckets that nothing was fitted on.

Mean log-loss gain g over N labelled rows, both sides clipped at 1e-6. Its variance is the larger of two cluster-robust
(ratio) estimates, with days and with unit buckets as blocks: B / (B - 1) sum_b (g_b - g n_b)^2 / N^2, g_b the gain
and n_b the rows of block b. Lower bound at z = 1.645.

* structure: passes iff g > 0 and the lower bound > - margin x loss;
* level: refused only when the lower bound <= - margin x loss.

Both: AUC may fall by at most `max_auc_drop`; no group may be harmed by more than the tolerance at a simultaneous lower
bound (Bonferroni, Student's t of the group's days); enough rows of both classes, and of panes that have their labels.

Codes of refusal: `too_few_rows`, `too_few_of_a_class`, `labels_missing` (nothing is compared then); `no_gain`,
`lower_bound_below_margin`, `auc_drop`, `group_harmed` (once for each group).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from stream_calib.calibration.metrics import LOG_LOSS_CLIP, auc_of_counts, log_loss_sums
from stream_calib.config import RefitSection
from stream_calib.refit.figures import rounded_figure
from stream_calib.refit.roles import overlap
from stream_calib.refit.row_weights import CellWeights
from stream_calib.snapshot.report import GateReason, GateReport, HarmedGroup

Z = 1.645
MIN_CLASS_ROWS = 10
"""Positives, and negatives, that the gate needs."""
GROUP_HARM_TOLERANCE = 0.05
"""Share of a group's loss."""
MIN_GROUP_ROWS = 10


@dataclass(frozen=True, slots=True)
class GateGroups:
    """One family: the names of its groups, and (k,) the group of each cell, -1 for none."""

    names: Sequence[str]
    group_of: NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class GateCells:
    """Labelled cells of the gate's buckets in complete panes; columns (k,)."""

    day: NDArray[np.int64]
    unit_bucket: NDArray[np.uint8]
    labelled: NDArray[np.int64]
    """Counts, as the next: how many rows there are is asked of them, and figures are made by weight."""
    positives: NDArray[np.int64]
    served: NDArray[np.float64]
    """Probability served now."""
    candidate: NDArray[np.float64]
    families: Sequence[GateGroups]
    weights: CellWeights


@dataclass(frozen=True, slots=True)
class GateWindow:
    """Where the cells come from."""

    kind: Literal["structure", "level"]
    baseline: str | None
    first_pane: int
    last_pane: int
    incomplete_panes: int
    incomplete_share: float
    """Of the window's winners."""


@dataclass(frozen=True, slots=True)
class _Losses:
    """Everything by weight."""

    labelled: NDArray[np.float64]
    positives: NDArray[np.float64]
    served: NDArray[np.float64]
    """(k,) summed over the rows of a cell, as the others."""
    gain: NDArray[np.float64]
    label_variance: NDArray[np.float64]
    """Variance of the gain if labels are drawn with a probability half-way between the two."""


def judge_candidate(cells: GateCells, window: GateWindow, config: RefitSection) -> GateReport:
    """The report; `passed` says whether the candidate may be published."""
    rows, positives = int(cells.labelled.sum()), int(cells.positives.sum())
    days = len(np.unique(cells.day))
    reasons: list[GateReason] = []
    if rows < config.gate_min_rows:
        detail = f"{rows} labelled rows on the gate's buckets; {config.gate_min_rows} are needed"
        reasons.append(GateReason(code="too_few_rows", detail=detail))
    if min(positives, rows - positives) < MIN_CLASS_ROWS:
        detail = f"{positives} positives of {rows} rows; {MIN_CLASS_ROWS} of each class are needed"
        reasons.append(GateReason(code="too_few_of_a_class", detail=detail))
    if window.incomplete_share > 0.5:
        detail = f"{window.incomplete_share:.0%} of the window's scores are in panes without their labels"
        reasons.append(GateReason(code="labels_missing", detail=detail))
    report = GateReport(
        kind=window.kind,
        baseline=window.baseline,
        first_pane=window.first_pane,
        last_pane=window.last_pane,
        incomplete_panes=window.incomplete_panes,
        days=days,
        rows=rows,
        positives=positives,
        margin=config.gate_margin,
        role_overlap=overlap(),
        passed=False,
        reasons=tuple(reasons),
    )
    return report if reasons else _compare(cells, report, config)


def _compare(cells: GateCells, report: GateReport, config: RefitSection) -> GateReport:
    losses = _losses(cells)
    rows = float(losses.labelled.sum())
    gain, loss = float(losses.gain.sum()) / rows, float(losses.served.sum()) / rows
    everything = np.zeros(len(cells.day), np.intp)
    (error_days,) = _block_errors(cells.day, everything, 1, losses.gain, losses.labelled)
    (error_buckets,) = _block_errors(cells.unit_bucket, everything, 1, losses.gain, losses.labelled)
    # A single day, or a single bucket, says nothing of its own variance; the other one stands. Where both are single,
    # what remains is the variance that the labels have by the probabilities themselves.
    errors = [e for e in (error_days, error_buckets) if not math.isnan(e)]
    lower = gain - Z * (max(errors) if errors else math.sqrt(float(losses.label_variance.sum())) / rows)
    auc_served = auc_of_counts(cells.served, losses.labelled, losses.positives)
    auc_candidate = auc_of_counts(cells.candidate, losses.labelled, losses.positives)
    harmed, underpowered = _groups(cells, losses)
    reasons: list[GateReason] = []
    if report.kind == "structure" and gain <= 0:
        reasons.append(GateReason(code="no_gain", detail=f"the mean gain {gain:.6f} is not above 0"))
    limit = -config.gate_margin * loss
    if lower <= limit:
        detail = f"the gain's lower bound {lower:.6f} is not above {limit:.6f}, the margin's share of the loss"
        reasons.append(GateReason(code="lower_bound_below_margin", detail=detail))
    if auc_served - auc_candidate > config.max_auc_drop:
        detail = f"AUC falls from {auc_served:.4f} to {auc_candidate:.4f}, by more than {config.max_auc_drop:g}"
        reasons.append(GateReason(code="auc_drop", detail=detail))
    for group in harmed:
        detail = f"{group.name} is harmed by at least {group.harm_lower:.6f} on a loss of {group.loss:.6f}"
        reasons.append(GateReason(code="group_harmed", detail=detail))
    found = {
        "loss_served": _short(loss),
        "loss_candidate": _short(loss - gain),
        "gain": _short(gain),
        "gain_lower": _short(lower),
        "error_days": _short(error_days),
        "error_buckets": _short(error_buckets),
        "auc_served": _short(auc_served),
        "auc_candidate": _short(auc_candidate),
        "harmed_groups": tuple(harmed),
        "underpowered_groups": tuple(underpowered),
        "passed": not reasons,
        "reasons": tuple(reasons),
    }
    return report.model_copy(update=found)


def _losses(cells: GateCells) -> _Losses:
    labelled, positives = cells.weights.weighted(cells.labelled, cells.positives)
    served = np.clip(cells.served, LOG_LOSS_CLIP, 1 - LOG_LOSS_CLIP)
    candidate = np.clip(cells.candidate, LOG_LOSS_CLIP, 1 - LOG_LOSS_CLIP)
    middle = (served + candidate) / 2
    gain_positive = np.log(candidate) - np.log(served)
    gain_negative = np.log1p(-candidate) - np.log1p(-served)
    # What a row of the label's weight adds: the negatives' weight, and as far as a label would be positive the other.
    negative, positive = cells.weights.negative, cells.weights.positive
    mean_weight = negative + (positive - negative) * (1 - middle)
    return _Losses(
        labelled,
        positives,
        log_loss_sums(cells.served, labelled, positives),
        positives * gain_positive + (labelled - positives) * gain_negative,
        labelled * middle * (1 - middle) * (gain_positive - gain_negative) ** 2 * mean_weight,
    )


def _block_errors(
    block: NDArray[np.generic],
    group: NDArray[np.intp],
    groups: int,
    gain: NDArray[np.float64],
    labelled: NDArray[np.float64],
) -> NDArray[np.float64]:
    """(groups,) standard errors of each group's mean gain with these blocks; nan with fewer than two blocks."""
    distinct, place = np.unique(block, return_inverse=True)
    cell = group * len(distinct) + place
    size = groups * len(distinct)
    gains = np.bincount(cell, gain, size).reshape(groups, -1)
    rows = np.bincount(cell, labelled, size).reshape(groups, -1)
    total = rows.sum(axis=1)
    blocks = (rows > 0).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        residual = gains - (gains.sum(axis=1) / total)[:, None] * rows
        errors = np.sqrt(blocks / (blocks - 1) * (residual**2).sum(axis=1)) / total
    return np.where(blocks > 1, errors, np.nan)


def _blocks(block: NDArray[np.generic], group: NDArray[np.intp], groups: int) -> NDArray[np.int64]:
    """(groups,) number of blocks in which each group has rows."""
    distinct, place = np.unique(block, return_inverse=True)
    seen = np.zeros((groups, len(distinct)), dtype=bool)
    seen[group, place] = True
    return np.asarray(seen.sum(axis=1), dtype=np.int64)


def _groups(cells: GateCells, losses: _Losses) -> tuple[list[HarmedGroup], list[str]]:
    """Groups that are harmed, and groups too small to tell."""
    tested: list[tuple[str, int, float, float, float, int]] = []
    underpowered: list[str] = []
    for family in cells.families:
        inside = family.group_of >= 0
        group, size = family.group_of[inside], len(family.names)
        labelled, gain = losses.labelled[inside], losses.gain[inside]
        rows = np.bincount(group, cells.labelled[inside], size)
        weight = np.maximum(np.bincount(group, labelled, size), 1)  # no row weighs less than 1
        mean = np.bincount(group, gain, size) / weight
        loss = np.bincount(group, losses.served[inside], size) / weight
        # A small group may hold labels of one class only, whose gains are all alike: the variance that its labels have
        # by the probabilities themselves is the least that is believed.
        single = np.sqrt(np.bincount(group, losses.label_variance[inside], size)) / weight
        by_day = _block_errors(cells.day[inside], group, size, gain, labelled)
        by_bucket = _block_errors(cells.unit_bucket[inside], group, size, gain, labelled)
        error = np.maximum(single, np.maximum(by_day, by_bucket))
        days = _blocks(cells.day[inside], group, size)
        for i in np.flatnonzero(rows > 0).tolist():
            if rows[i] < MIN_GROUP_ROWS or math.isnan(error[i]):
                underpowered.append(family.names[i])
            else:
                figures = -float(mean[i]), float(error[i]), float(loss[i])
                tested.append((family.names[i], int(rows[i]), *figures, int(days[i])))
    if not tested:
        return [], sorted(underpowered)
    harmed: list[HarmedGroup] = []
    for name, n, harm, error_of, loss_of, days_of in tested:
        tolerance = GROUP_HARM_TOLERANCE * loss_of
        # So many groups are compared that the quantile lies far out, where a variance of few days needs Student's t.
        z = float(stdtrit(days_of - 1, 1 - 0.05 / len(tested)))
        if harm - z * error_of > tolerance:
            harmed.append(
                HarmedGroup(
                    name=name,
                    rows=n,
                    harm=rounded_figure(harm),
                    harm_lower=rounded_figure(harm - z * error_of),
                    loss=rounded_figure(loss_of),
                )
            )
        elif z * error_of > tolerance:
            underpowered.append(name)
    return harmed, sorted(underpowered)


def _short(value: float) -> float | None:
    """None for nan."""
    return None if math.isnan(value) else rounded_figure(float(value))
