"""A refit's report in plain words: what was asked, how it ended, and what each verdict means."""

from __future__ import annotations

from typing import NamedTuple

from stream_calib.snapshot.report import GateReport, RefitReport
from stream_calib.snapshot.report_documents import DecisionImpact, RoleRows, Verdict
from workers.time_text import utc_of_pane

VERDICTS: dict[Verdict, str] = {
    "harmed": "harmed",
    "better": "better",
    "not_harmed": "no harm",
    "underpowered": "too few to tell",
}


class Compared(NamedTuple):
    """One figure of what is served and of the candidate."""

    name: str
    served: str
    candidate: str


def asked_rows(report: RefitReport, pane_ms: int, became: str | None = None) -> list[tuple[str, str]]:
    """The request and its end: what each line is about, and its text. `became`: of a held candidate, see `fate`."""
    rows = [
        ("request", report.request_id),
        ("asked for", f"{report.kind}, {report.reason}, with the pane of {utc_of_pane(report.pane, pane_ms)} UTC"),
    ]
    asked = report.asked
    if asked is not None:
        rows += [("asked by", text) for text in asked.asked_by]
        since, until = utc_of_pane(asked.first_pane, pane_ms), utc_of_pane(asked.last_pane + 1, pane_ms)
        rows.append(("data", f"matured panes from {since} until {until} UTC"))
        rows.append(("served then", asked.parent or "the raw score"))
    rows.append(("ended", report.outcome + (f" as {report.version}" if report.version else "")))
    if report.outcome == "held" and became is not None and became != "held":
        rows.append(("then", became))
    elif report.outcome == "held":
        rows.append(("waits for", f"`stream-calib snapshot approve {report.version}`, or `snapshot reject`"))
    elif report.outcome != "published":
        reasons = () if report.gate is None else report.gate.reasons
        rows += [("because", reason.detail) for reason in reasons] or [("because", report.detail)]
    return rows


def hash_rows(report: RefitReport) -> list[tuple[str, str]]:
    """By what the request named its data, and the choice its evidence."""
    if report.asked is None:
        return []
    rows = [("cells", report.asked.cells_sha256), ("configuration", report.asked.config_hash)]
    if report.asked.evidence_sha256 is not None:
        rows.append(("forward evidence", report.asked.evidence_sha256))
    return rows


def role_row(role: RoleRows, pane_ms: int) -> tuple[str, str, str, str, str]:
    """Role, unit buckets, since when, labelled rows, positives."""
    buckets = f"{role.unit_buckets[0]}-{role.unit_buckets[-1]}"
    since = utc_of_pane(role.first_pane, pane_ms)
    return role.role, buckets, since, f"{role.rows:,}", f"{role.positives:,}"


def overlap_text(report: RefitReport) -> str:
    """How many unit buckets have more than one role."""
    if report.gate is None:
        return ""
    overlap = report.gate.role_overlap
    return "No unit bucket has two roles." if not overlap else f"{overlap} unit buckets have two roles."


def gate_rows(gate: GateReport) -> list[Compared]:
    """Figures of both sides; none where nothing was compared."""
    if gate.loss_served is None or gate.loss_candidate is None:
        return []
    rows = [Compared("log-loss", f"{gate.loss_served:.5f}", f"{gate.loss_candidate:.5f}")]
    if gate.auc_served is not None and gate.auc_candidate is not None:
        rows.append(Compared("AUC", f"{gate.auc_served:.4f}", f"{gate.auc_candidate:.4f}"))
    return rows


def gain_text(gate: GateReport) -> str:
    """The gain with its lower bound, and the data that it was found on."""
    on = f"{gate.rows:,} labelled rows of {gate.days} days, {gate.positives:,} of them positive"
    if gate.gain is None or gate.gain_lower is None or gate.loss_served is None:
        return f"Nothing was compared: {on}."
    limit = -gate.margin * gate.loss_served
    return f"Gain {gate.gain:+.5f} a row, lower bound {gate.gain_lower:+.5f} (allowed: above {limit:+.5f}); {on}."


def incomplete_text(gate: GateReport) -> str:
    """Panes of the window that did not count; empty where there are none."""
    return f"{gate.incomplete_panes:,} panes miss labels and did not count." if gate.incomplete_panes else ""


def decision_text(decision: DecisionImpact) -> str:
    """What happens at one threshold."""
    return (
        f"{decision.name} (at {decision.threshold:g}): {decision.up:.2%} of {decision.events:,} events come to it,"
        f" {decision.down:.2%} leave it; {decision.at_or_above:.2%} were at it or above"
    )
