"""`stream-calib snapshot shadow`: a version evaluated beside what is served."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from stream_calib.errors import ConfigurationError
from stream_calib.refit.shadow_evaluation import ShadowEvaluation
from workers.candidate_tables import facts_table
from workers.cli_common import DEFAULT_CONFIG, ConfigOption, JsonOption, console, load, print_json, readable_errors
from workers.cli_models import ModelOption, VersionOption, open_selected
from workers.cli_snapshot_changes import ActorOption, stated_reason, user_name
from workers.shadow_texts import shadow_rows
from workers.time_text import utc_minute

app = typer.Typer()


@app.command(epilog='Examples: stream-calib snapshot shadow 000012-0123456789ab --reason "is it better?" ; ... shadow')
def shadow(
    snapshot: Annotated[
        str | None, typer.Argument(help="A held candidate or an earlier version; without one the figures are shown.")
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="End the evaluation.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the decision log.")] = "",
    actor: ActorOption = "",
    model: ModelOption = None,
    version: VersionOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a version beside what is served, on the same matured events; nobody is served by it.

    Log-loss and worst group error of both, over the decided panes behind those that it was made from, 28 days at most.
    To serve it: `snapshot approve` where it is held, `snapshot rollback` where it was published before.
    """
    with readable_errors():
        if snapshot is not None and off:
            raise ConfigurationError("name a version or say --off, not both")
        if snapshot is not None or off:
            stated_reason(reason)
        loaded = load(config)
        state = open_selected(loaded, model, version)
        if off:
            ended = state.snapshots.unshadow(actor or user_name(), reason)
        elif snapshot is not None:
            state.snapshots.shadow(snapshot, actor or user_name(), reason)
        log = state.snapshots.log()
        figures = ShadowEvaluation(state.store, state.snapshots, loaded).figures(log)
    if as_json:
        by = None if log.shadow is None else log.shadow.model_dump(mode="json")
        print_json({"shadow": by, "figures": None if figures is None else asdict(figures)})
    elif off:
        console.print(f"{state.model_key}: {ended} is no longer the shadow")
    elif log.shadow is None or figures is None:
        console.print(f"{state.model_key} has no shadow; `stream-calib snapshot shadow VERSION --reason ...` makes one")
    else:
        title = f"{log.shadow.version}, the shadow since {utc_minute(log.shadow.time_ms)} UTC"
        console.print(facts_table(shadow_rows(figures, loaded.windows.pane_ms), title))
