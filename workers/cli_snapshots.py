"""`stream-calib snapshot`: what there is. What changes it is in cli_snapshot_changes and cli_snapshot_held."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from stream_calib.errors import ConfigurationError
from stream_calib.refit.shadow_evaluation import ShadowEvaluation
from stream_calib.snapshot.difference import difference
from stream_calib.snapshot.history import is_publication
from stream_calib.snapshot.recent_traffic import recent_traffic
from workers.candidate_tables import candidate_table, facts_table, snapshot_tables
from workers.cli_common import DEFAULT_CONFIG, ConfigOption, JsonOption, console, load, print_json, readable_errors
from workers.cli_models import ModelOption, VersionOption, open_selected
from workers.difference_tables import difference_facts, difference_tables
from workers.shadow_texts import shadow_rows
from workers.time_text import utc_minute, utc_of_pane

app = typer.Typer(no_args_is_help=True, help="List, compare, approve, pin and roll back snapshots.")


@app.command("list", epilog="Example: stream-calib snapshot list --json")
def list_snapshots(
    model: ModelOption = None,
    version: VersionOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Every move of the snapshot pointer, and what else people did (pins, rejections, shadows), oldest first; the move
    to the current version is marked."""
    with readable_errors():
        loaded = load(config)
        state = open_selected(loaded, model, version)
        history, log = state.snapshots.history(), state.snapshots.log()
    if as_json:
        pin = None if log.pin is None else log.pin.model_dump(mode="json")
        shadowing = None if log.shadow is None else log.shadow.model_dump(mode="json")
        held = [held.model_dump(mode="json") for held in log.held.values()]
        print_json({"current": log.current, "pinned": pin, "shadow": shadowing, "held": held, "history": history})
        return
    # Without lines between the columns, and with times in two lines, it fits into 80 characters.
    table = Table(title=f"Snapshots of {state.model_key}", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("", "version", "what", "from pane", "actor", "reason", "at (UTC)"):
        # A version is there to be copied into the next command.
        width = len("2013-03-01") if column in ("from pane", "at (UTC)") else None
        table.add_column(column, no_wrap=column == "version", min_width=width)
    last = max((i for i, move in enumerate(history) if is_publication(move)), default=None)
    for i, move in enumerate(history):
        here = "->" if i == last else ""
        pane = utc_of_pane(move["pane"], loaded.windows.pane_ms)
        table.add_row(
            here, move["version"], move["what"], pane, move["actor"], move["reason"], utc_minute(move["time_ms"])
        )
    console.print(table)
    if log.pin is not None:
        console.print(
            f"{log.pin.version} is pinned by {log.pin.actor} since {utc_minute(log.pin.time_ms)} UTC:", log.pin.reason
        )
    if (shadow := log.shadow) is not None:
        console.print(f"{shadow.version} is the shadow since {utc_minute(shadow.time_ms)} UTC:", shadow.reason)
    if log.held:
        console.print(f"{len(log.held)} held: see `stream-calib snapshot held`")


@app.command("refits", epilog="Example: stream-calib snapshot refits --json")
def list_refits(
    model: ModelOption = None,
    version: VersionOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Every refit that was asked for, oldest first: why, how it ended, and what the gate found; refused ones too."""
    with readable_errors():
        loaded = load(config)
        state = open_selected(loaded, model, version)
        reports, log = state.snapshots.reports(), state.snapshots.log()
    if as_json:
        print_json([report.model_dump(mode="json") for report in reports])
        return
    table = Table(title=f"Refits of {state.model_key}", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("from pane", "kind", "asked for by", "ended", "gain", "what came of it"):
        # Fixed: where the columns together are too wide, the versions in the last one would be cut off.
        width = len("2013-03-01") if column == "from pane" else None
        widest = "000012-89abcdef0123" if column == "what came of it" else ""
        table.add_column(column, width=width, min_width=len(widest) or None)
    for report in reports:
        asked = [f"{entry.actor}: {entry.reason}" for entry in log.manual_at(report.pane)]
        by = "; ".join(asked) if report.reason == "manual" else report.reason
        gain = "" if report.gate is None or report.gate.gain is None else f"{report.gate.gain:+.5f}"
        when = utc_of_pane(report.pane, loaded.windows.pane_ms)
        refused_for = ", ".join(code.replace("_", " ") for code in report.refused_for)
        table.add_row(when, report.kind, by, report.outcome, gain, report.version or refused_for or report.detail)
    console.print(table)
    made = [report for report in reports if report.choices is not None]
    if made:
        last = made[-1]
        console.print(f"Last candidate, {utc_of_pane(last.pane, loaded.windows.pane_ms)}, {last.outcome}")
        console.print(candidate_table(last.choices, last.certificate, last.coverage, last.uncovered))


@app.command(epilog="Examples: stream-calib snapshot show ; stream-calib snapshot show 000012-89abcdef0123 --json")
def show(
    snapshot: Annotated[
        str | None, typer.Argument(help="A version from `snapshot list`; the current one by default.")
    ] = None,
    model: ModelOption = None,
    version: VersionOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """What one snapshot was made of: its data, what is in the map and why, what its certificate claims. --json is the
    document itself, checked against its content hash."""
    with readable_errors():
        loaded = load(config)
        state = open_selected(loaded, model, version)
        wanted = snapshot or state.snapshots.current()
        if wanted is None:
            raise ConfigurationError(
                f"{state.model_key} has no snapshot yet; `stream-calib status` says what it waits for"
            )
        document, log = state.snapshots.document(wanted), state.snapshots.log()
        found = None if as_json else state.snapshots.load(wanted)
        figures = None
        if found is not None and log.shadow is not None and log.shadow.version == wanted:
            figures = ShadowEvaluation(state.store, state.snapshots, loaded).figures(log)
    if found is None:
        print_json(json.loads(document.encode()))
        return
    console.print(*snapshot_tables(found, loaded.windows.pane_ms), sep="\n")
    if figures is not None:
        console.print(facts_table(shadow_rows(figures, loaded.windows.pane_ms), title="Beside what was served"))


@app.command(epilog="Examples: stream-calib snapshot diff 000011-0123456789ab ; ... diff 000009-... 000011-... --json")
def diff(
    before: Annotated[str, typer.Argument(help="A version from `snapshot list`.")],
    after: Annotated[str | None, typer.Argument(help="Another one; the current one by default.")] = None,
    model: ModelOption = None,
    version: VersionOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Compare two snapshots: base map, offsets, slopes and patches of groups, level, and what it means for the traffic
    of now (the scores of the PSI window, drift.psi_window), and for those who decide by it (section decisions)."""
    with readable_errors():
        loaded = load(config)
        state = open_selected(loaded, model, version)
        other = after or state.snapshots.current()
        if other is None:
            raise ConfigurationError(f"{state.model_key} has no snapshot yet, so there is nothing to compare with")
        one, two = state.snapshots.load(before), state.snapshots.load(other)
        traffic = recent_traffic(state.store, loaded.drift.psi_window_ms // loaded.windows.pane_ms)
        found = difference(one, two, traffic, loaded.decisions)
    if as_json:
        print_json(difference_facts(found, traffic, loaded.windows.pane_ms))
    else:
        console.print(*difference_tables(found, traffic, loaded.windows.pane_ms), sep="\n")
