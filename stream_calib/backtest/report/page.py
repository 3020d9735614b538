"""The report of a backtest: one HTML page that holds everything it shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from stream_calib.backtest.comparison.figures import scored_days
from stream_calib.backtest.document import BacktestDocument
from stream_calib.backtest.outcome import PolicyOutcome
from stream_calib.backtest.report.alarms import alarm_spans
from stream_calib.backtest.report.choice import chosen
from stream_calib.backtest.report.differences import MOST_DRAWN, difference_chart
from stream_calib.backtest.report.groups import group_map
from stream_calib.backtest.report.policy_table import policy_rows
from stream_calib.backtest.report.reliability import reliability_charts
from stream_calib.backtest.report.series import DAY_MS
from stream_calib.backtest.report.summary import measures, optimism_text, statements
from stream_calib.backtest.report.tables import (
    MOST_ROWS,
    AlarmRow,
    RefitRow,
    alarm_rows,
    detection_rows,
    facts,
    month_rows,
    refit_rows,
)
from stream_calib.backtest.report.time_line import time_line
from stream_calib.pages.refit_counts import refits_by_reason
from stream_calib.pages.svg import Drawing, drawing
from stream_calib.pages.templates import page_environment
from stream_calib.pages.texts import count_text, in_words, shortened

_MOST_COUNTS = 60
_MOST_WARNINGS = 30


@dataclass(frozen=True, slots=True)
class _Events:
    """What one policy's alarms and refits were."""

    name: str
    alarms: Sequence[AlarmRow]
    alarms_in_all: int
    early_alarms: int
    """On days that count in no figure; so `early_refits`."""
    alarms_by_kind: Sequence[tuple[str, int]]
    refits: Sequence[RefitRow]
    refits_in_all: int
    early_refits: int
    published: int
    outcomes: Sequence[str]
    reasons: Sequence[tuple[str, Sequence[int]]]
    refused_for: Sequence[tuple[str, int]]


def render_report(document: BacktestDocument) -> str:
    """The page as text. The same document gives the same text; it refers to nothing outside itself.

    Raises BacktestError where the document lacks a policy that it speaks of.
    """
    shown = chosen(document)
    environment = page_environment("stream_calib.backtest.report")
    environment.filters.update(count=count_text, words=in_words, short=shortened)
    followed = [shown.current] if shown.best is None else [shown.current, shown.best]
    counts = sorted(document.counts.items())
    table = policy_rows(shown)
    return environment.get_template("report.html.j2").render(
        d=document,
        title=shortened(f"{document.model} {document.model_version}", 120),
        statements=statements(shown),
        measures=measures(shown),
        current=shown.current,
        best=shown.best,
        verdict=shown.verdict,
        table=table,
        left_out=len(document.table) + 1 - len(table),
        most_drawn=MOST_DRAWN,
        # Markup: the charts escape every text that they are given.
        differences=_markup(difference_chart(shown), "differences") if len(document.table) > 1 else None,
        optimism=optimism_text(document),
        time_line=_markup(time_line(shown.current, shown.best, document.pane_ms), "times"),
        months=month_rows(shown),
        reliability=[(chart, _markup(chart.drawing, "")) for chart in reliability_charts(shown)],
        groups=group_map(shown.current),
        detections=detection_rows(document.detections),
        events=[_events(outcome, document.pane_ms) for outcome in followed],
        most_rows=MOST_ROWS,
        facts=facts(document, shown.current),
        counts=counts[:_MOST_COUNTS],
        counts_left_out=max(len(counts) - _MOST_COUNTS, 0),
        warnings=document.warnings[:_MOST_WARNINGS],
        warnings_left_out=max(len(document.warnings) - _MOST_WARNINGS, 0),
    )


def _markup(chart: Drawing, css: str) -> Markup:
    return Markup(drawing(*chart, css))


def _events(outcome: PolicyOutcome, pane_ms: int) -> _Events:
    spans, first = alarm_spans(outcome, pane_ms), scored_days(outcome)[0].day
    outcomes, reasons = refits_by_reason([(refit.reason, refit.outcome) for refit in outcome.refits])
    codes = Counter(code for refit in outcome.refits for code in dict.fromkeys(refit.codes))
    return _Events(
        outcome.policy,
        alarm_rows(spans),
        len(spans),
        sum((span.opened_ms - 1) // DAY_MS < first for span in spans),
        _most_common(Counter(span.kind for span in spans)),
        refit_rows(outcome.refits, pane_ms),
        len(outcome.refits),
        sum(refit.pane * pane_ms // DAY_MS < first for refit in outcome.refits),
        sum(refit.outcome == "published" for refit in outcome.refits),
        outcomes,
        reasons,
        _most_common(codes),
    )


def _most_common(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
