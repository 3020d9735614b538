"""`stream-calib refit`: on record with who and why."""

from __future__ import annotations

import typer

from workers.cli_common import DEFAULT_CONFIG, ConfigOption, console, load, readable_errors
from workers.cli_models import ModelOption, VersionOption, open_selected
from workers.cli_snapshot_changes import ActorOption, ReasonOption, user_name
from workers.time_text import utc_of_pane

app = typer.Typer()


@app.command("refit", epilog='Example: stream-calib refit --model flights --reason "new fares since Monday"')
def request_refit(
    reason: ReasonOption = "asked for by hand",
    actor: ActorOption = "",
    model: ModelOption = None,
    version: VersionOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Ask for a structure refit; it is made with the next pane that is decided."""
    with readable_errors():
        loaded = load(config)
        state = open_selected(loaded, model, version)
        pane = state.snapshots.request_manual(actor or user_name(), reason)
        pinned = state.snapshots.log().pin
    when = utc_of_pane(pane, loaded.windows.pane_ms)
    console.print(f"a refit of {state.model_key} is asked for, with the decision of pane {pane} (from {when} UTC)")
    if pinned is not None:
        console.print(f"it will be judged but not published: {pinned.actor} pinned {pinned.version}")
