"""`snapshot report`, within 80 columns."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table

from stream_calib.snapshot.report import GateReport, RefitReport
from stream_calib.snapshot.report_documents import ChangesDocument, DecisionImpact, GroupTableDocument, RoleRows
from workers.candidate_tables import candidate_table, facts_table
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

_GROUPS_SHOWN = 15


def report_tables(report: RefitReport, pane_ms: int, became: str | None = None) -> list[RenderableType]:
    """Everything that the report holds; of long lists the first lines. `became` as in `asked_rows`."""
    tables: list[RenderableType] = [facts_table(asked_rows(report, pane_ms, became), title="Refit")]
    if hashes := hash_rows(report):
        tables.append(facts_table(hashes))
    if report.roles:
        tables += [_roles(report.roles, pane_ms), overlap_text(report)]
    if report.gate is not None:
        tables += _gate(report.gate)
    if report.groups is not None:
        tables.append(_groups(report.groups))
    if report.changes is not None:
        tables.append(_changes(report.changes))
    if report.gate is not None:
        tables += [decision_table(decision) for decision in report.gate.decisions]
    if report.choices is not None:
        tables.append(candidate_table(report.choices, report.certificate, report.coverage, report.uncovered))
    return [table for table in tables if table != ""]


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right", overflow="fold")
    return table


def _roles(roles: tuple[RoleRows, ...], pane_ms: int) -> Table:
    table = _table("Data of each role", "role", "unit buckets", "since (UTC)", "labelled rows", "positives")
    for role in roles:
        table.add_row(*role_row(role, pane_ms))
    return table


def _gate(gate: GateReport) -> list[RenderableType]:
    found: list[RenderableType] = []
    if rows := gate_rows(gate):
        table = _table("Gate", "", "served", "candidate")
        for row in rows:
            table.add_row(*row)
        found.append(table)
    return [*found, " ".join([gain_text(gate), incomplete_text(gate)]).strip()]


def _groups(groups: GroupTableDocument) -> Table:
    shown = groups.lines[:_GROUPS_SHOWN]
    more = len(groups.lines) - len(shown) + groups.left_out
    title = "Groups: true rate less probability" + (f" ({more:,} more)" if more else "")
    table = _table(title, "group", "rows", "rate", "served", "candidate", "verdict")
    for line in shown:
        residuals = (f"{line.rate - p:+.4f}" for p in (line.served, line.candidate))
        table.add_row(line.name, f"{line.rows:,}", f"{line.rate:.4f}", *residuals, VERDICTS[line.verdict])
    return table


def _changes(changes: ChangesDocument) -> Table:
    shown = changes.groups[:_GROUPS_SHOWN]
    more = len(changes.groups) - len(shown) + changes.left_out
    title = f"What changes for whom, of {changes.events:,} scores" + (f" ({more:,} more groups)" if more else "")
    table = _table(title, "group", "events", "served", "candidate", "shift")
    whole = ("all", changes.events, changes.served, changes.candidate)
    for name, events, served, candidate in (whole, *((g.name, g.events, g.served, g.candidate) for g in shown)):
        table.add_row(name, f"{events:,}", f"{served:.4f}", f"{candidate:.4f}", f"{candidate - served:+.4f}")
    return table


def decision_table(decision: DecisionImpact) -> Table:
    """Of whose events most cross a threshold."""
    table = _table(f"Decision {decision_text(decision)}", "group", "events", "come to it", "leave it", "at least")
    for group in decision.groups:
        lower = "-" if group.lower is None else f"{max(group.lower, 0.0):.2%}"
        table.add_row(group.name, f"{group.events:,}", f"{group.up:.2%}", f"{group.down:.2%}", lower)
    return table
