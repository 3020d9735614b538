"""Rows of the report's tables, as texts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stream_calib.backtest.comparison.figures import scored_days
from stream_calib.backtest.document import BacktestDocument, Detection, Interval, PolicyFigures
from stream_calib.backtest.outcome import PolicyOutcome, RefitFigures
from stream_calib.backtest.report.alarms import AlarmSpan, alarm_spans
from stream_calib.backtest.report.choice import Chosen, Side, side
from stream_calib.backtest.report.series import DAY_MS
from stream_calib.pages.texts import (
    NONE,
    count_text,
    figure_text,
    in_words,
    minute_text,
    percent_text,
    shortened,
    signed_text,
)

MOST_POLICIES = 100
MOST_ROWS = 300
"""Of refits, and of alarms, of one policy."""
_LONGEST_NAME, _LONGEST_TEXT = 120, 300
_SIDES: dict[Side, str] = {"better": "better", "worse": "worse", "same": "may be chance", "unknown": "too few days"}


class FigureText(NamedTuple):
    value: str
    interval: str
    """`0.5021 to 0.5055`; empty where it is unknown."""


class DifferenceText(NamedTuple):
    value: str
    interval: str
    verdict: str
    css: str


class PolicyRow(NamedTuple):
    name: str
    marks: Sequence[str]
    """`current`, `best`."""
    settings: str
    """What differs from the configuration."""
    log_loss: FigureText
    log_loss_difference: DifferenceText | None
    brier: FigureText
    brier_difference: DifferenceText | None
    debiased_ece: FigureText
    worst_group_error: str
    alarms: str
    refits: str
    published: str
    staleness_hours: str
    coverage: str


class MonthRow(NamedTuple):
    """The time line in figures; of the policies beside the raw score."""

    month: str
    labelled: str
    raw: str
    current: str
    best: str
    psi: str
    swaps: str
    alarms: str


def policy_rows(shown: Chosen) -> list[PolicyRow]:
    """The current and the best policy, then all others by log-loss, at most MOST_POLICIES; the raw score at the end."""
    document = shown.document
    first = [figures for figures in (shown.figures, shown.best_figures) if figures is not None]
    others = [figures for figures in document.table if figures not in first]
    others.sort(key=_by_loss)
    table = sorted([*first, *others[: MOST_POLICIES - len(first)]], key=_by_loss)
    overrides = {outcome.policy: outcome.overrides for outcome in document.outcomes}
    return [_policy_row(f, overrides.get(f.policy, {}), shown) for f in [*table, document.raw]]


def _settings(name: str, overrides: Mapping[str, str]) -> str:
    """Empty where the name says them, as that of a grid's policy does."""
    if all(f"{key.rpartition('.')[2]}=" in name for key in overrides):
        return ""
    return ", ".join(f"{key}={value}" for key, value in sorted(overrides.items()))


def _by_loss(figures: PolicyFigures) -> tuple[bool, float]:
    return math.isnan(figures.log_loss.value), figures.log_loss.value


def _policy_row(figures: PolicyFigures, overrides: dict[str, str], shown: Chosen) -> PolicyRow:
    raw = figures is shown.document.raw
    marks = []
    if not raw and figures.policy == shown.document.current:
        marks.append("current")
    if not raw and figures is (shown.best_figures or shown.figures) and shown.verdict != "alone":
        marks.append("lowest log-loss")
    return PolicyRow(
        "raw score" if raw else shortened(figures.policy, _LONGEST_NAME),
        marks,
        shortened(_settings(figures.policy, overrides), _LONGEST_TEXT),
        _figure(figures.log_loss),
        _difference(figures.log_loss_difference),
        _figure(figures.brier),
        _difference(figures.brier_difference),
        _figure(figures.debiased_ece),
        f"{figure_text(figures.worst_group_error_percent, 1)}\N{NO-BREAK SPACE}%",
        NONE if raw else count_text(figures.alarms),
        NONE if raw else count_text(figures.refits),
        "" if raw else count_text(figures.published),
        NONE if raw else figure_text(figures.staleness_hours, 1),
        percent_text(figures.coverage),
    )


def _figure(interval: Interval) -> FigureText:
    return FigureText(figure_text(interval.value), interval_text(interval, 4))


def _difference(interval: Interval | None) -> DifferenceText | None:
    if interval is None:
        return None
    seen = side(interval)
    text = interval_text(interval, 5, signed=True)
    return DifferenceText(signed_text(interval.value, 5), text, _SIDES[seen], seen)


def interval_text(interval: Interval, digits: int, signed: bool = False) -> str:
    """`0.5021 to 0.5055`; empty where it is unknown."""
    if interval.low is None or interval.high is None:
        return ""
    shown = signed_text if signed else figure_text
    return f"{shown(interval.low, digits)} to {shown(interval.high, digits)}"


def month_rows(shown: Chosen) -> list[MonthRow]:
    """By UTC month, days that warm up too."""
    pane_ms = shown.document.pane_ms
    current, best = shown.current, shown.best
    months = sorted({_month(day.day * DAY_MS) for day in current.days})
    losses = _losses(current, raw=False)
    raw, better = _losses(current, raw=True), {} if best is None else _losses(best, raw=False)
    psi: dict[str, float] = {}
    for day in current.days:
        if day.psi is not None:
            psi[_month(day.day * DAY_MS)] = max(day.psi, psi.get(_month(day.day * DAY_MS), 0.0))
    swaps = Counter(_month((refit.pane + 1) * pane_ms) for refit in current.refits if refit.outcome == "published")
    alarms = Counter(_month(span.opened_ms) for span in alarm_spans(current, pane_ms))

    def mean(table: dict[str, tuple[float, float]], month: str) -> str:
        total, labelled = table.get(month, (0.0, 0.0))
        return figure_text(total / labelled) if labelled > 0 else NONE

    return [
        MonthRow(
            month,
            count_text(losses[month][1]),
            mean(raw, month),
            mean(losses, month),
            mean(better, month),
            figure_text(psi[month], 3) if month in psi else NONE,
            count_text(swaps[month]),
            count_text(alarms[month]),
        )
        for month in months
    ]


def _losses(outcome: PolicyOutcome, raw: bool) -> dict[str, tuple[float, float]]:
    """Month -> sum of log-losses, labelled."""
    out: dict[str, tuple[float, float]] = {}
    for day in outcome.days:
        sums = day.raw if raw else day.served
        total, labelled = out.get(_month(day.day * DAY_MS), (0.0, 0.0))
        out[_month(day.day * DAY_MS)] = total + sums.log_loss, labelled + sums.labelled
    return out


def _month(time_ms: int) -> str:
    return minute_text(time_ms)[:7]


class RefitRow(NamedTuple):
    when: str
    asked: str
    outcome: str
    gain: str
    gain_lower: str
    level: str
    rung: str
    what: str
    """What it changed, or why it was refused."""


def refit_rows(refits: Sequence[RefitFigures], pane_ms: int) -> list[RefitRow]:
    """The newest MOST_ROWS, in order."""
    return [
        RefitRow(
            minute_text((refit.pane + 1) * pane_ms),
            f"{refit.kind}, {in_words(refit.reason)}",
            refit.outcome,
            signed_text(refit.gain, 5),
            signed_text(refit.gain_lower, 5),
            signed_text(refit.level, 3),
            refit.rung or "",
            shortened(_changed(refit), _LONGEST_TEXT),
        )
        for refit in refits[-MOST_ROWS:]
    ]


def _changed(refit: RefitFigures) -> str:
    why = ", ".join(in_words(code) for code in dict.fromkeys(refit.codes))
    return ": ".join(part for part in (why, refit.changed) if part) or (refit.version or "")


class AlarmRow(NamedTuple):
    kind: str
    since: str
    opened: str
    closed: str
    what: str


def alarm_rows(spans: Sequence[AlarmSpan]) -> list[AlarmRow]:
    """The newest MOST_ROWS, in order."""
    return [
        AlarmRow(
            in_words(span.kind),
            minute_text(span.since_ms),
            minute_text(span.opened_ms),
            "still open" if span.closed_ms is None else minute_text(span.closed_ms),
            shortened(span.what, _LONGEST_TEXT),
        )
        for span in spans[-MOST_ROWS:]
    ]


class AfterText(NamedTuple):
    value: str
    """`after 1.5 days`."""
    at: str
    """`2013-06-02 12:00`."""


class DetectionRow(NamedTuple):
    injected: str
    start: str
    noticed: AfterText
    by: str
    refit: AfterText
    untouched: str
    injected_loss: str
    difference: str


def detection_rows(detections: Sequence[Detection]) -> list[DetectionRow]:
    return [
        DetectionRow(
            shortened(one.injected, _LONGEST_TEXT),
            minute_text(one.from_ms),
            _after(one.from_ms, one.noticed_ms, "never"),
            shortened(one.noticed_by or "", _LONGEST_TEXT),
            _after(one.from_ms, one.refit_ms, "none"),
            *_losses_of(one),
        )
        for one in detections
    ]


def _losses_of(one: Detection) -> tuple[str, str, str]:
    before, after = one.log_loss_untouched, one.log_loss
    shown = [NONE if loss is None else figure_text(loss) for loss in (before, after)]
    return shown[0], shown[1], NONE if before is None or after is None else signed_text(after - before)


def _after(from_ms: int, at_ms: int | None, never: str) -> AfterText:
    if at_ms is None:
        return AfterText(never, "")
    hours = (at_ms - from_ms) / 3_600_000
    return AfterText(f"after {hours:.0f} hours" if hours < 48 else f"after {hours / 24:.1f} days", minute_text(at_ms))


def facts(document: BacktestDocument, current: PolicyOutcome) -> list[tuple[str, str]]:
    """How it was computed."""
    exact = "exact: from the first pane on, or from a state, as live"
    cold = "cold: nothing is known of what was before, so the first days differ from what was live"
    panes = document.last_pane - document.first_pane + 1
    first, end = (minute_text(pane * document.pane_ms) for pane in (document.first_pane, document.last_pane + 1))
    return [
        ("Source", shortened(document.source, _LONGEST_TEXT)),
        ("Start", exact if document.start == "exact" else cold),
        ("Panes", f"{panes:,} of {document.pane_ms / 60_000:g} minutes, {first} to {end} UTC"),
        ("Figures count from", minute_text(scored_days(current)[0].day * DAY_MS)[:10]),
        ("History", f"SHA-256 {current.history_sha256}"),
        ("Current policy", f"{shortened(current.policy, _LONGEST_NAME)}, configuration {current.config_hash}"),
        ("Decision log", f"tip {current.tip or NONE}, alerts {current.outbox_sha256}"),
    ]
