"""The facts of `stream-calib status` for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from stream_calib.refit.shadow_evaluation import ShadowFigures
from stream_calib.windows.panes import ENDED_CLOCK_MS
from workers.alert_listing import handled
from workers.shadow_texts import gain_text
from workers.time_text import age, utc_minute, utc_of_pane

_SILENT_MS = 10_000
"""A process that said nothing for longer is marked."""


def status_tables(facts: dict[str, Any]) -> list[Table]:
    """The deployment's inputs, then what each model key is at."""
    now_ms = facts["now_ms"]
    inputs = Table(title="Behind the log", title_justify="left", show_header=False)
    for lag in facts["lags"]:
        most = max(lag["partitions"], key=lag["partitions"].__getitem__, default=None)
        worst = f"most on partition {most}: {lag['partitions'][most]:,}" if lag["behind"] else ""
        inputs.add_row(f"{lag['role']} on {lag['topic']}", f"{lag['behind']:,}", worst)
    if facts["log_error"] is not None:
        inputs.add_row("not known", facts["log_error"])
    for gap in facts["gaps"]:
        lost = f"{gap['topic']}-{gap['partition']}: {gap['first']} to {gap['end'] - 1}, never read by {gap['role']}"
        inputs.add_row("gap", lost, age(now_ms - gap["time_ms"]) + " ago")
    tables = [inputs]
    if facts["alerts"]:
        tables.append(_alert_table("Open alerts of the deployment", facts["alerts"], now_ms))
    if facts["hooks"]:
        tables.append(_hooks(facts["hooks"]))
    return [*tables, *(table for model in facts["models"] for table in model_tables(model, now_ms))]


def model_tables(facts: dict[str, Any], now_ms: int) -> list[Table]:
    """One model key: where it stands, its events, alerts and processes."""
    return [_head(facts, now_ms), _events(facts), _alerts(facts, now_ms), _processes(facts)]


def _head(facts: dict[str, Any], now_ms: int) -> Table:
    head = Table(title=f"{facts['model']}  (state {facts['generation']})", title_justify="left", show_header=False)
    since = facts["snapshot_since_ms"]
    snapshot = facts["snapshot"] or "none yet: scores are served as they come"
    head.add_row("snapshot", snapshot if since is None else f"{snapshot}, for {age(now_ms - since)}")
    if (pin := facts["pinned"]) is not None:
        head.add_row("pinned", f"by {pin['actor']}, for {age(now_ms - pin['time_ms'])}: {pin['reason']}")
    if facts["held"]:
        head.add_row("held", f"{len(facts['held'])} for `snapshot approve`, the newest is {facts['held'][-1]}")
    if (shadow := facts["shadow"]) is not None:
        head.add_row("shadow", f"{shadow['version']}, for {age(now_ms - shadow['time_ms'])}: {_shadow_gain(shadow)}")
    for name, pane in facts["panes"].items():
        if name != "first_pane":
            end = "nothing yet" if pane is None else f"up to {utc_of_pane(pane + 1, facts['pane_ms'])} UTC"
            head.add_row(name, end)
    for side, clock_ms in facts["watermarks_ms"].items():
        if clock_ms is not None and facts["clocks_ms"][side] < ENDED_CLOCK_MS:
            head.add_row(f"watermark of {side}", f"{utc_minute(clock_ms)} UTC, {age(now_ms - clock_ms)} ago")
    head.add_row("waits for", waits_for(facts["clocks_ms"]))
    head.add_row("refits", ", ".join(f"{n} {outcome}" for outcome, n in facts["refits"].items()) or "none yet")
    head.add_row("in flight", facts["open_request"] or "-")
    coverage = facts["coverage"]
    scored = coverage["labelled"] + coverage["unlabelled"]
    if scored:
        share = f"{coverage['labelled'] / scored:.1%} of {scored:,} scores"
        head.add_row("labelled", f"{share} in the last {coverage['panes']} matured panes")
    if facts["detectors"] is not None:
        for name, said in detector_rows(facts["detectors"]):
            head.add_row(name, said)
    return head


def _shadow_gain(shadow: Mapping[str, Any]) -> str:
    if shadow["figures"] is None:
        return f"no figures, {shadow['error']}"
    return "gain a row " + gain_text(ShadowFigures(**shadow["figures"]))


_WAITS = {
    "settled": "nothing asks for one",
    "maturing": "waits for the labels of the scores that moved",
    "cooling_down": "waits for refit.cooldown",
    "waiting_for_labels": "waits for refit.min_new_labels",
    "armed": "asked for with the next pane",
}


def detector_rows(detectors: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names of rows and what they say."""
    rows = []
    for name, watched in (("outcomes", detectors["outcomes"]), ("labels by group", detectors["labels"])):
        if watched is None:
            rows.append((name, "not watched yet: needs a snapshot with three whole drift.psi_window behind it"))
            continue
        said = f"{watched['cells']} cells watched, "
        said += f"in alarm: {', '.join(watched['in_alarm'])}" if watched["in_alarm"] else "none in alarm"
        if watched["closest"] is not None:
            said += f"; closest: {watched['closest']}, with {watched['evidence']:.0%} of an alarm's evidence"
        rows.append((name, said))
    if detectors["psi_in_alarm"]:
        rows.append(("scores that moved", ", ".join(detectors["psi_in_alarm"])))
    return [*rows, ("refit by drift", _WAITS[detectors["trigger"]])]


def _events(facts: dict[str, Any]) -> Table:
    outcomes = Table(title="Events", title_justify="left", show_header=False)
    for name, n in facts["outcomes"].items():
        outcomes.add_row(name.replace("_", " "), f"{n:,}")
    for name, n in facts["unmatched"].items():
        outcomes.add_row(f"not matched: {name.replace('_', ' ')}", f"{n:,}")
    return outcomes


def _alerts(facts: dict[str, Any], now_ms: int) -> Table:
    waiting = f" ({facts['alerts_to_send']} events not delivered yet)" if facts["alerts_to_send"] else ""
    return _alert_table(f"Open alerts{waiting}", facts["alerts"], now_ms)


def _alert_table(title: str, alerts: Sequence[Mapping[str, Any]], now_ms: int) -> Table:
    if not alerts:
        none = Table(title=title, title_justify="left", show_header=False)
        none.add_row("none")
        return none
    table = Table(title=title, title_justify="left")
    for column in ("kind", "severity", "since (UTC)", "for", "diagnosis"):
        table.add_column(column)
    for alert in alerts:
        since = alert["since_ms"]
        said = "\n".join(filter(None, (alert["diagnosis"], handled(alert, now_ms))))
        table.add_row(alert["kind"], alert["severity"], utc_minute(since), age(now_ms - since), said)
    return table


def _hooks(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="Hooks", title_justify="left")
    for column in ("hook", "waiting", "failing for", "given up"):
        table.add_column(column)
    for row in rows:
        oldest = f"{row['waiting']}, the oldest for {age(row['oldest_ms'])}" if row["waiting"] else "nothing"
        failing = "" if row["failing_ms"] is None else f"{age(row['failing_ms'])}: {row['says']}"
        last = row["given_up_last"]
        lost = "" if last is None else f"{row['given_up']}, the last {last['alert']['dedup_key']}: {last['detail']}"
        table.add_row(row["hook"], oldest, failing, lost, style="yellow" if failing else None)
    return table


def _processes(facts: dict[str, Any]) -> Table:
    processes = Table(title="Processes", title_justify="left")
    for column in ("role", "member", "heard of", "says"):
        processes.add_column(column)
    for process in facts["processes"]:
        says = ", ".join(
            f"{k} {_said(v)}" for k, v in process["facts"].items() if k != "inputs" and v not in (None, {}, "")
        )
        silent = process["age_ms"] > _SILENT_MS
        heard = age(process["age_ms"]) + " ago" + (" (silent)" if silent else "")
        processes.add_row(process["role"], process["member"], heard, says, style="yellow" if silent else None)
    return processes


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


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return "(" + ", ".join(f"{name} {n}" for name, n in value.items()) + ")"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
