"""`stream-calib snapshot` and `stream-calib refit`."""

from __future__ import annotations

import getpass
import json
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from stream_calib.errors import ConfigurationError
from workers.cli_common import DEFAULT_CONFIG, ConfigOption, JsonOption, console, load, print_json, readable_errors
from workers.deployment import open_state
from workers.time_text import utc_minute, utc_of_pane

app = typer.Typer(no_args_is_help=True, help="List, show and roll back snapshots.")

ReasonOption = Annotated[str, typer.Option("--reason", help="Why; kept in the decision log.")]
ActorOption = Annotated[
    str, typer.Option("--actor", help="Who; kept in the decision log.", show_default="the user's name")
]


@app.command("list", epilog="Example: stream-calib snapshot list --json")
def list_snapshots(config: ConfigOption = DEFAULT_CONFIG, as_json: JsonOption = False) -> None:
    """Every move of the snapshot pointer, oldest first; the current version is marked."""
    with readable_errors():
        loaded = load(config)
        state = open_state(loaded)
        history, current = state.snapshots.history(), state.snapshots.current()
    if as_json:
        print_json({"current": current, "history": history})
        return
    # Without lines between the columns, and with times in two lines, it fits into 80 characters.
    table = Table(title=f"Snapshots of {state.model_key}", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("", "version", "what", "from pane", "actor", "reason", "at (UTC)"):
        # A version is there to be copied into the next command.
        width = len("2013-03-01") if column in ("from pane", "at (UTC)") else None
        table.add_column(column, no_wrap=column == "version", min_width=width)
    for i, move in enumerate(history):
        here = "->" if i == len(history) - 1 else ""
        pane = utc_of_pane(move["pane"], loaded.windows.pane_ms)
        table.add_row(
            here, move["version"], move["what"], pane, move["actor"], move["reason"], utc_minute(move["time_ms"])
        )
    console.print(table)


@app.command("refits", epilog="Example: stream-calib snapshot refits --json")
def list_refits(config: ConfigOption = DEFAULT_CONFIG, as_json: JsonOption = False) -> None:
    """Every refit that was asked for, oldest first: why, how it ended, and what the gate found; refused ones too."""
    with readable_errors():
        loaded = load(config)
        state = open_state(loaded)
        reports, log = state.snapshots.reports(), state.snapshots.log()
    if as_json:
        print_json([report.model_dump(mode="json") for report in reports])
        return
    table = Table(title=f"Refits of {state.model_key}", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("from pane", "kind", "asked for by", "ended", "gain", "what came of it"):
        widest = {"from pane": "2013-03-01", "what came of it": "000012-89abcdef0123"}.get(column)
        table.add_column(column, min_width=None if widest is None else len(widest))
    for report in reports:
        asked = [f"{entry.actor}: {entry.reason}" for entry in log.manual_at(report.pane)]
        by = "; ".join(asked) if report.reason == "manual" else report.reason
        gain = "" if report.gate is None or report.gate.gain is None else f"{report.gate.gain:+.5f}"
        when = utc_of_pane(report.pane, loaded.windows.pane_ms)
        refused_for = ", ".join(code.replace("_", " ") for code in report.refused_for)
        table.add_row(when, report.kind, by, report.outcome, gain, report.version or refused_for or report.detail)
    console.print(table)


@app.command(epilog="Examples: stream-calib snapshot show ; stream-calib snapshot show 000012-89abcdef0123")
def show(
    version: Annotated[
        str | None, typer.Argument(help="A version from `snapshot list`; the current one by default.")
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Print one snapshot as JSON, checked against its content hash."""
    with readable_errors():
        state = open_state(load(config))
        wanted = version or state.snapshots.current()
        if wanted is None:
            raise ConfigurationError(
                f"{state.model_key} has no snapshot yet; `stream-calib status` says what it waits for"
            )
        print_json(json.loads(state.snapshots.document(wanted).encode()))


@app.command(epilog='Example: stream-calib snapshot rollback 000011-0123456789ab --reason "declines went up"')
def rollback(
    version: Annotated[str, typer.Argument(help="A version that was published before.")],
    reason: ReasonOption,
    actor: ActorOption = "",
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Serve an earlier snapshot again, from the next pane that is decided on; calibrate takes it up at its next
    poll."""
    with readable_errors():
        state = open_state(load(config))
        state.snapshots.rollback(version, actor or _user(), reason)
    console.print(f"{state.model_key} now serves {version}")


def request_refit(
    model: Annotated[str, typer.Option("--model", help="The model's name, as in the configuration.")],
    reason: ReasonOption = "asked for by hand",
    actor: ActorOption = "",
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Ask for a structure refit; it is made with the next pane that is decided."""
    with readable_errors():
        loaded = load(config)
        if model != loaded.model.name:
            raise ConfigurationError(f"{config} is about the model {loaded.model.name}, not {model}")
        state = open_state(loaded)
        pane = state.snapshots.request_manual(actor or _user(), reason)
    when = utc_of_pane(pane, loaded.windows.pane_ms)
    console.print(f"a refit of {state.model_key} is asked for, with the decision of pane {pane} (from {when} UTC)")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:  # in a container the user may be a number without a name
        raise ConfigurationError("the user of this process has no name; say who asks with --actor NAME") from error
