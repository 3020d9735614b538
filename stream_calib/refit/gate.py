"""The gate: whether one candidate may replace what is served, judged on unit buckets that nothing was fitted on.

Mean log-loss gain g over N labelled rows, both sides clipped at 1e-6. Its variance is the larger of two cluster-robust
(ratio) estimates, with days and with unit buckets as blocks: B / (B - 1) sum_b (g_b - g n_b)^2 / N^2, g_b the gain
and n_b the rows of block b. Lower bound at z = 1.645.

* structure: passes iff g > 0 and the lower bound > - margin x loss;
* level: refused only when the lower bound <= - margin x loss.

Both: AUC may fall by at most `max_auc_drop`; no group may be harmed by more than the tolerance at a simultaneous lower
bound (`gate_groups.py`); not more events may cross a threshold of the users than `max_decision_shift`, where it is set
(`decisions.py`); enough rows of both classes, and of panes that have their labels.

Codes of refusal: `too_few_rows`, `too_few_of_a_class`, `labels_missing` (no losses are compared then); `no_gain`,
`lower_bound_below_margin`, `auc_drop`, `group_harmed` (once for each group that the report names), `decision_shift`
(once for each decision).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stream_calib.calibration.metrics import auc_of_counts
from stream_calib.config_refits import RefitSection
from stream_calib.refit.decisions import shifts_beyond
from stream_calib.refit.gate_groups import JudgedGroup, judge_groups
from stream_calib.refit.gate_rows import GateCells, GateLosses, block_errors
from stream_calib.refit.roles import overlap
from stream_calib.snapshot.figures import rounded_figure
from stream_calib.snapshot.report import MOST_HARMED, MOST_UNDERPOWERED, GateReason, GateReport, HarmedGroup
from stream_calib.snapshot.report_documents import DecisionImpact

Z = 1.645
MIN_CLASS_ROWS = 10
"""Positives, and negatives, that the gate needs."""


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
class GateFigures:
    """What the gate's cells say, before anything is asked of it."""

    rows: int
    positives: int
    days: int
    compared: Comparison | None
    """None with too few rows of a class."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The candidate against what is served; losses are means a labelled row. Errors may be nan."""

    loss: float
    gain: float
    lower: float
    """Lower bound of the gain."""
    error_days: float
    error_buckets: float
    auc_served: float
    auc_candidate: float
    harmed: Sequence[JudgedGroup]
    """Those of the most harm, at most MOST_HARMED; so many more there are:"""
    harmed_left_out: int
    underpowered: Sequence[str]
    underpowered_left_out: int


def judge_candidate(
    cells: GateCells, window: GateWindow, config: RefitSection, decisions: Sequence[DecisionImpact] = ()
) -> GateReport:
    """The report; `passed` says whether the candidate may be published."""
    losses = GateLosses.of(cells)
    return judge_figures(gate_figures(cells, losses, judge_groups(cells, losses)), window, config, decisions)


def gate_figures(cells: GateCells, losses: GateLosses, judged: Sequence[JudgedGroup]) -> GateFigures:
    """The figures of the cells, by which any limits can be judged. `losses`: of the cells; `judged`: as `judge_groups`
    finds the groups."""
    rows, positives = int(cells.labelled.sum()), int(cells.positives.sum())
    enough = min(positives, rows - positives) >= MIN_CLASS_ROWS
    compared = _compare(cells, losses, judged) if enough else None
    return GateFigures(rows, positives, len(np.unique(cells.day)), compared)


def judge_figures(
    figures: GateFigures, window: GateWindow, config: RefitSection, decisions: Sequence[DecisionImpact] = ()
) -> GateReport:
    """The report of the figures, by the limits of the configuration."""
    rows, positives = figures.rows, figures.positives
    reasons: list[GateReason] = []
    if rows < config.gate_min_rows:
        detail = f"{rows} labelled rows on the gate's buckets; {config.gate_min_rows} are needed"
        reasons.append(GateReason(code="too_few_rows", detail=detail))
    if figures.compared is None:
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
        days=figures.days,
        rows=rows,
        positives=positives,
        margin=config.gate_margin,
        role_overlap=overlap(),
        passed=False,
        reasons=tuple(reasons),
        decisions=tuple(decisions),
    )
    return report if reasons or figures.compared is None else _judged(figures.compared, report, config)


def _compare(cells: GateCells, losses: GateLosses, groups: Sequence[JudgedGroup]) -> Comparison:
    rows = float(losses.labelled.sum())
    gain, loss = float(losses.gain.sum()) / rows, float(losses.served.sum()) / rows
    everything = np.zeros(len(cells.day), np.intp)
    (error_days,) = block_errors(cells.day, everything, 1, losses.gain, losses.labelled)
    (error_buckets,) = block_errors(cells.unit_bucket, everything, 1, losses.gain, losses.labelled)
    # A single day, or a single bucket, says nothing of its own variance; the other one stands. Where both are single,
    # what remains is the variance that the labels have by the probabilities themselves.
    errors = [e for e in (error_days, error_buckets) if not math.isnan(e)]
    # The report names those that say most, so that it stays small whatever the number of groups.
    harmed = sorted((g for g in groups if g.verdict == "harmed"), key=lambda g: (-g.harm_lower * g.rows, g.name))
    underpowered = sorted((g for g in groups if g.verdict == "underpowered"), key=lambda g: (-g.rows, g.name))
    return Comparison(
        loss=loss,
        gain=gain,
        lower=gain - Z * (max(errors) if errors else math.sqrt(float(losses.label_variance.sum())) / rows),
        error_days=error_days,
        error_buckets=error_buckets,
        auc_served=auc_of_counts(cells.served, losses.labelled, losses.positives),
        auc_candidate=auc_of_counts(cells.candidate, losses.labelled, losses.positives),
        harmed=harmed[:MOST_HARMED],
        harmed_left_out=max(len(harmed) - MOST_HARMED, 0),
        underpowered=sorted(group.name for group in underpowered[:MOST_UNDERPOWERED]),
        underpowered_left_out=max(len(underpowered) - MOST_UNDERPOWERED, 0),
    )


def _judged(found: Comparison, report: GateReport, config: RefitSection) -> GateReport:
    gain, lower, auc_served, auc_candidate = found.gain, found.lower, found.auc_served, found.auc_candidate
    reasons: list[GateReason] = []
    if report.kind == "structure" and gain <= 0:
        reasons.append(GateReason(code="no_gain", detail=f"the mean gain {gain:.6f} is not above 0"))
    limit = -config.gate_margin * found.loss
    if lower <= limit:
        detail = f"the gain's lower bound {lower:.6f} is not above {limit:.6f}, the margin's share of the loss"
        reasons.append(GateReason(code="lower_bound_below_margin", detail=detail))
    if auc_served - auc_candidate > config.max_auc_drop:
        detail = f"AUC falls from {auc_served:.4f} to {auc_candidate:.4f}, by more than {config.max_auc_drop:g}"
        reasons.append(GateReason(code="auc_drop", detail=detail))
    for group in found.harmed:
        detail = f"{group.name} is harmed by at least {group.harm_lower:.6f} on a loss of {group.loss:.6f}"
        reasons.append(GateReason(code="group_harmed", detail=detail))
    if report.baseline is not None and config.max_decision_shift is not None:
        # Before the first snapshot everybody decides by the raw score, and all that a limit could keep is its error.
        for detail in shifts_beyond(report.decisions, config.max_decision_shift):
            reasons.append(GateReason(code="decision_shift", detail=detail))
    return report.model_copy(
        update={
            "loss_served": _short(found.loss),
            "loss_candidate": _short(found.loss - gain),
            "gain": _short(gain),
            "gain_lower": _short(lower),
            "error_days": _short(found.error_days),
            "error_buckets": _short(found.error_buckets),
            "auc_served": _short(auc_served),
            "auc_candidate": _short(auc_candidate),
            "harmed_groups": tuple(_harmed(group) for group in found.harmed),
            "harmed_left_out": found.harmed_left_out,
            "underpowered_groups": tuple(found.underpowered),
            "underpowered_left_out": found.underpowered_left_out,
            "passed": not reasons,
            "reasons": tuple(reasons),
        }
    )


def _harmed(group: JudgedGroup) -> HarmedGroup:
    return HarmedGroup(
        name=group.name,
        rows=group.rows,
        harm=rounded_figure(-group.gain),
        harm_lower=rounded_figure(group.harm_lower),
        loss=rounded_figure(group.loss),
    )


def _short(value: float) -> float | None:
    """None for nan."""
    return None if math.isnan(value) else rounded_figure(float(value))
