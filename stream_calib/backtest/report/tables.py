"""Rows of the report's tables but for that of policies, as texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from stream_calib.backtest.comparison.figures import scored_days
from stream_calib.backtest.document import BacktestDocument, Detection
from stream_calib.backtest.outcome import PolicyOutcome, RefitFigures
from stream_calib.backtest.report.alarms import AlarmSpan, alarm_spans
from stream_calib.backtest.report.choice import Chosen
from stream_calib.backtest.report.series import DAY_MS
from stream_calib.pages.texts import (
    NONE,
    count_text,
    figure_text,
    in_words,
    minute_text,
    shortened,
    signed_text,
)

MOST_ROWS = 300
"""Of refits, and of alarms, of one policy."""
LONGEST_NAME, LONGEST_TEXT = 120, 300


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
            shortened(_changed(refit), LONGEST_TEXT),
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
            shortened(span.what, LONGEST_TEXT),
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
    notes: Sequence[str]
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
            shortened(one.injected, LONGEST_TEXT),
            [shortened(note, LONGEST_TEXT) for note in one.notes],
            minute_text(one.from_ms),
            _after(one.from_ms, one.noticed_ms, "never"),
            shortened(one.noticed_by or "", LONGEST_TEXT),
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
        ("Source", shortened(document.source, LONGEST_TEXT)),
        ("Start", exact if document.start == "exact" else cold),
        ("Panes", f"{panes:,} of {document.pane_ms / 60_000:g} minutes, {first} to {end} UTC"),
        ("Figures count from", minute_text(scored_days(current)[0].day * DAY_MS)[:10]),
        ("History", f"SHA-256 {current.history_sha256}"),
        ("Current policy", f"{shortened(current.policy, LONGEST_NAME)}, configuration {current.config_hash}"),
        ("Decision log", f"tip {current.tip or NONE}, alerts {current.outbox_sha256}"),
    ]
