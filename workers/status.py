"""`stream-calib status`: facts of one model key as plain values, and as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from rich.table import Table

from stream_calib.alerts.model import Alert
from stream_calib.config import Config
from stream_calib.windows.panes import ENDED_CLOCK_MS
from workers.deployment import State
from workers.time_text import age, utc_minute, utc_of_pane
from workers.totals import outcome_totals


def status_facts(state: State, config: Config, now_ms: int) -> dict[str, Any]:
    """Everything that is known about the model key; times in epoch milliseconds, panes as numbers."""
    fields = state.store.read(
        ("generation", "first_pane", "closed", "matured", "decided", "open_request", "current", "outbox_sent")
    )
    open_alerts: dict[str, Alert] = {}
    for raw in state.store.entries("outbox", 0):
        alert = Alert.decode(raw)
        open_alerts[alert.dedup_key] = alert
        if alert.state == "close":
            del open_alerts[alert.dedup_key]
    reports = state.snapshots.reports()
    return {
        "model": str(state.model_key),
        "generation": fields["generation"],
        "snapshot": fields["current"] or None,
        "panes": {
            name: None if fields[name] is None else int(fields[name] or 0)
            for name in ("first_pane", "closed", "matured", "decided")
        },
        "pane_ms": config.windows.pane_ms,
        "clocks_ms": _clocks(state),
        "open_request": fields["open_request"] or None,
        "refits": {
            outcome: sum(r.outcome == outcome for r in reports) for outcome in sorted({r.outcome for r in reports})
        },
        "outcomes": outcome_totals(state.store, state.shards),
        "alerts": [
            {"kind": a.kind, "severity": a.severity, "since_ms": a.since_ms, "diagnosis": a.diagnosis}
            for a in open_alerts.values()
        ],
        "processes": [
            {"role": s.role, "member": s.member, "age_ms": now_ms - s.time_ms, "facts": msgspec.to_builtins(s.facts)}
            for s in state.board.all(now_ms)
        ],
    }


def _clocks(state: State) -> dict[str, int | None]:
    """The least clock over the partitions of each side: panes wait for it. None: a partition has had no event yet."""
    found: dict[str, list[int | None]] = {"scores": [], "labels": []}
    for shard in state.shards.progress():
        for input_key, mark in shard.marks.items():
            found["scores" if input_key.startswith("s:") else "labels"].append(mark.clock_ms)
    return {side: None if None in clocks or not clocks else min(filter(None, clocks)) for side, clocks in found.items()}


def waits_for(clocks_ms: Mapping[str, int | None]) -> str:
    """What holds the next pane up, from the least clock of each side."""
    silent = [side for side, clock in clocks_ms.items() if clock is None]
    known = {side: clock for side, clock in clocks_ms.items() if clock is not None}
    if silent:
        return f"a first event on every partition of {' and '.join(silent)}"
    least = min(known.values())
    if least >= ENDED_CLOCK_MS:
        return "nothing: every partition has ended"
    sides = " and ".join(side for side, clock in known.items() if clock == least)
    return f"later {sides}: the slowest partition stands at {utc_minute(least)} UTC"


def status_tables(facts: dict[str, Any]) -> list[Table]:
    """The same for people."""
    head = Table(title=f"{facts['model']}  (state {facts['generation']})", title_justify="left", show_header=False)
    head.add_row("snapshot", facts["snapshot"] or "none yet: scores are served as they come")
    for name, pane in facts["panes"].items():
        if name != "first_pane":
            end = "nothing yet" if pane is None else f"up to {utc_of_pane(pane + 1, facts['pane_ms'])} UTC"
            head.add_row(name, end)
    head.add_row("waits for", waits_for(facts["clocks_ms"]))
    head.add_row("refits", ", ".join(f"{n} {outcome}" for outcome, n in facts["refits"].items()) or "none yet")
    head.add_row("in flight", facts["open_request"] or "-")

    outcomes = Table(title="Events", title_justify="left", show_header=False)
    for name, n in facts["outcomes"].items():
        outcomes.add_row(name.replace("_", " "), f"{n:,}")

    alerts = Table(title="Open alerts", title_justify="left")
    for column in ("kind", "severity", "since (UTC)", "diagnosis"):
        alerts.add_column(column)
    for alert in facts["alerts"]:
        alerts.add_row(alert["kind"], alert["severity"], utc_minute(alert["since_ms"]), alert["diagnosis"])

    processes = Table(title="Processes", title_justify="left")
    for column in ("role", "member", "heard of", "says"):
        processes.add_column(column)
    for process in facts["processes"]:
        says = ", ".join(
            f"{k} {_said(v)}" for k, v in process["facts"].items() if k != "inputs" and v not in (None, {}, "")
        )
        processes.add_row(process["role"], process["member"], age(process["age_ms"]) + " ago", says)
    return [head, outcomes, alerts, processes]


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return "(" + ", ".join(f"{name} {n}" for name, n in value.items()) + ")"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
