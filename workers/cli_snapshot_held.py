"""`stream-calib snapshot held|approve|reject`: candidates that wait for somebody (refit.publish = "approve")."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from stream_calib.snapshot.folded_log import Held
from stream_calib.snapshot.report import RefitReport
from workers.cli_common import DEFAULT_CONFIG, ConfigOption, JsonOption, console, load, print_json, readable_errors
from workers.cli_models import ModelOption, VersionOption, open_selected
from workers.cli_snapshot_changes import ActorOption, ReasonOption, user_name
from workers.time_text import utc_of_pane

app = typer.Typer()

HeldArgument = Annotated[str, typer.Argument(help="A version from `snapshot held`.")]


@app.command("held", epilog="Example: stream-calib snapshot held --json")
def list_held(
    model: ModelOption = None,
    version: VersionOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Candidates that passed their gate and wait for `snapshot approve`, oldest first, with the gate's figures.

    What one would change for whom: `snapshot diff CURRENT VERSION`. How it does on new events: `snapshot shadow`.
    """
    with readable_errors():
        loaded = load(config)
        state = open_selected(loaded, model, version)
        log = state.snapshots.log()
        reports = {report.request_id: report for report in state.snapshots.reports() if report.outcome == "held"}
    found = [(held, reports.get(held.request_id)) for held in log.held.values()]
    if as_json:
        print_json([_facts(held, report, current=log.current) for held, report in found])
        return
    if not found:
        console.print(f"no candidate of {state.model_key} is held")
        return
    title = f"Held candidates of {state.model_key}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("version", "kind", "from pane", "gain", "at least", "rows", "AUC", ""):
        numeric = column in ("gain", "at least", "rows", "AUC")
        width = len("2013-03-01") if column == "from pane" else None
        table.add_column(column, no_wrap=column == "version", width=width, justify="right" if numeric else "left")
    for held, report in found:
        shadow = log.shadow is not None and log.shadow.version == held.version
        notes = ["shadow"] * shadow + ["superseded: its parent is not current"] * (held.parent != log.current)
        when = utc_of_pane(held.asked_pane, loaded.windows.pane_ms)
        table.add_row(held.version, held.kind, when, *_figures(report), ", ".join(notes))
    console.print(table)
    console.print(f"gain in log-loss a row over {log.current or 'the raw score'}; approving one supersedes the others")


@app.command(epilog='Example: stream-calib snapshot approve 000012-0123456789ab --reason "reviewed with risk"')
def approve(
    snapshot: HeldArgument,
    reason: ReasonOption,
    actor: ActorOption = "",
    model: ModelOption = None,
    version: VersionOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Publish a held candidate, as long as what it was compared with is still served; the other held ones are
    superseded. calibrate takes it up at once, or at its next poll."""
    with readable_errors():
        state = open_selected(load(config), model, version)
        state.snapshots.approve(snapshot, actor or user_name(), reason)
    console.print(f"{state.model_key} now serves {snapshot}")


@app.command(epilog='Example: stream-calib snapshot reject 000012-0123456789ab --reason "declines too many in EWR"')
def reject(
    snapshot: HeldArgument,
    reason: ReasonOption,
    actor: ActorOption = "",
    model: ModelOption = None,
    version: VersionOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Drop a held candidate. Its report stays (`snapshot refits`), and who rejected it and why (`snapshot list`)."""
    with readable_errors():
        state = open_selected(load(config), model, version)
        state.snapshots.reject(snapshot, actor or user_name(), reason)
    console.print(f"{state.model_key}: {snapshot} is rejected")


def _facts(held: Held, report: RefitReport | None, current: str | None) -> dict[str, Any]:
    return held.model_dump(mode="json") | {
        "approvable": held.parent == current,
        "report": None if report is None else report.model_dump(mode="json"),
    }


def _figures(report: RefitReport | None) -> list[str]:
    """Gain, its lower bound, rows, AUC before and after; `-` where the report is no longer kept."""
    gate = None if report is None else report.gate
    if gate is None or gate.gain is None or gate.gain_lower is None:
        return ["-"] * 4
    auc = "-" if gate.auc_served is None else f"{gate.auc_served:.4f} to {gate.auc_candidate:.4f}"
    return [f"{gate.gain:+.5f}", f"{gate.gain_lower:+.5f}", f"{gate.rows:,}", auc]
