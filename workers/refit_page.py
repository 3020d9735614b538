"""The report of one refit as a page that holds everything it shows."""

from __future__ import annotations

from markupsafe import Markup

from stream_calib.events.contracts import ModelKey
from stream_calib.pages.reliability_chart import Curve, compared_reliability
from stream_calib.pages.residual_chart import ResidualRow, residual_chart
from stream_calib.pages.templates import page_environment
from stream_calib.snapshot.report import RefitReport
from stream_calib.snapshot.report_documents import GroupTableDocument, ReliabilityColumns, ReliabilityDocument
from workers.candidate_texts import certificate_rows, choice_rows, coverage_rows
from workers.refit_texts import (
    VERDICTS,
    asked_rows,
    decision_text,
    gain_text,
    gate_rows,
    hash_rows,
    incomplete_text,
    overlap_text,
    role_row,
)
from workers.time_text import utc_of_pane


def refit_page(report: RefitReport, key: ModelKey, pane_ms: int, became: str | None = None) -> str:
    """The page as text, `became` as in `asked_rows`. The same input gives the same text; it stands alone."""
    environment = page_environment("workers")
    environment.filters.update(
        count=lambda n: f"{n:,}", share=_share, probability=_probability, signed=_signed, verdict=VERDICTS.__getitem__
    )
    choices, certificate = report.choices, report.certificate
    return environment.get_template("refit_report.html.j2").render(
        r=report,
        key=str(key),
        when=utc_of_pane(report.pane, pane_ms),
        asked=asked_rows(report, pane_ms, became),
        hashes=hash_rows(report),
        roles=[role_row(role, pane_ms) for role in report.roles],
        overlap=overlap_text(report),
        compared=[] if report.gate is None else gate_rows(report.gate),
        gain="" if report.gate is None else gain_text(report.gate),
        incomplete="" if report.gate is None else incomplete_text(report.gate),
        decisions=() if report.gate is None else report.gate.decisions,
        decision_text=decision_text,
        candidate=[] if choices is None else choice_rows(choices),
        figures=() if choices is None else choices.figures,
        certificate=[] if certificate is None else certificate_rows(certificate),
        coverage=coverage_rows(report.coverage, report.uncovered),
        # Markup: the charts escape every text that they are given.
        reliability=None if report.reliability is None else Markup(_reliability(report.reliability)),
        residuals=None if report.groups is None else Markup(_residuals(report.groups)),
    )


def _reliability(document: ReliabilityDocument) -> str:
    return compared_reliability(_curve(document.served), _curve(document.candidate), "rows")


def _curve(columns: ReliabilityColumns) -> Curve:
    return Curve(columns.probability, columns.rate, columns.lower, columns.upper, columns.rows)


def _residuals(groups: GroupTableDocument) -> str:
    rows = [
        ResidualRow(
            "",
            line.name,
            line.rows,
            line.rate,
            line.served - line.rate,
            line.candidate - line.rate,
            (line.rate_lower, line.rate_upper),
        )
        for line in groups.lines
    ]
    return residual_chart(rows, ("served", "candidate"), "rows")


def _share(value: float) -> str:
    return f"{value:.2%}".replace("%", "\N{NO-BREAK SPACE}%")


def _probability(value: float) -> str:
    return f"{value:.4f}" if value >= 0.01 or not value else f"{value:.3g}"


def _signed(value: float | None, digits: int = 4) -> str:
    return "" if value is None else f"{value:+.{digits}f}".replace("-", "\N{MINUS SIGN}")
