"""The report of a demo run: one HTML page that holds everything it shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from stream_calib.demo.charts import group_chart, reliability_chart
from stream_calib.demo.figures import DemoFigures
from stream_calib.demo.report_data import AlertEntry, ReportData
from stream_calib.demo.time_line import time_line
from stream_calib.pages.refit_counts import refits_by_reason
from stream_calib.pages.templates import page_environment
from stream_calib.pages.texts import count_text, date_text, in_words, minute_text, signed_text

_SEVERITIES = ("critical", "warning", "info")


class _Measure(NamedTuple):
    name: str
    raw: str
    calibrated: str
    change: str
    verdict: str
    """better, worse or same: the class of the page's style."""
    says: str


class _AlertGroup(NamedTuple):
    """All alerts of one kind."""

    kind: str
    severity: str
    open_share: float
    """Of the time that the report covers."""
    still_open: bool
    alerts: Sequence[AlertEntry]


def render_report(data: ReportData) -> str:
    """The page as text. The same data gives the same text; it refers to nothing outside itself."""
    environment = page_environment("stream_calib.demo")
    environment.filters.update(count=count_text, date=date_text, minute=minute_text, words=in_words, signed=signed_text)
    outcomes, reasons = refits_by_reason([(refit.reason, refit.outcome) for refit in data.refits])
    return environment.get_template("report.html.j2").render(
        d=data,
        f=data.figures,
        measures=_measures(data.figures),
        outcomes=outcomes,
        reasons=reasons,
        refused_for=Counter(code for r in data.refits for code in r.refused_for).most_common(),
        alert_groups=_alert_groups(data),
        # Markup: the charts escape every text that they are given.
        raw_reliability=Markup(reliability_chart(data.raw_reliability, "raw", "raw score")),
        calibrated_reliability=Markup(
            reliability_chart(data.calibrated_reliability, "calibrated", "calibrated probability")
        ),
        groups=Markup(group_chart(data.groups)),
        time_line=Markup(time_line(data)),
    )


def _measures(figures: DemoFigures) -> list[_Measure]:
    raw, calibrated = figures.raw, figures.calibrated
    return [
        _measure(
            "Log-loss",
            (raw.log_loss, calibrated.log_loss),
            "{:.4f}",
            "overall quality of the probabilities; less is better",
        ),
        _measure(
            "Worst group error",
            (raw.worst_group_error, calibrated.worst_group_error),
            "{:.1f} %",
            "largest one-sided error in any carrier, origin or pair, small groups weigh less; less is better",
        ),
        _measure("ECE", (raw.ece, calibrated.ece), "{:.4f}", "mean distance between said and true; less is better"),
        _measure("Brier", (raw.brier, calibrated.brier), "{:.4f}", "mean squared error; less is better"),
        _measure("AUC", (raw.auc, calibrated.auc), "{:.4f}", "how well late flights are ranked; more is better", 1),
    ]


def _measure(name: str, values: tuple[float, float], shown: str, says: str, better_sign: int = -1) -> _Measure:
    before, after = values
    gain = (after - before) * better_sign
    verdict = "better" if gain > 0 else "worse" if gain < 0 else "same"
    change = f"{(after - before) / before:+.1%}".replace("-", "\N{MINUS SIGN}").replace("%", " %") if before else ""
    return _Measure(name, shown.format(before), shown.format(after), change, verdict, says)


def _alert_groups(data: ReportData) -> list[_AlertGroup]:
    """The most severe first, then by kind."""
    span = max(data.last_ms - data.first_ms, 1)
    groups = []
    for kind in sorted({a.kind for a in data.alerts}):
        alerts = [a for a in data.alerts if a.kind == kind]
        # An alert may begin before, or end after, the scores do.
        covered = sum(min(a.closed_ms or data.last_ms, data.last_ms) - max(a.opened_ms, data.first_ms) for a in alerts)
        still_open = any(a.closed_ms is None for a in alerts)
        groups.append(_AlertGroup(kind, alerts[0].severity, max(covered, 0) / span, still_open, alerts))
    return sorted(groups, key=lambda g: _SEVERITIES.index(g.severity))
