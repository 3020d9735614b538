"""`stream-calib status`."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from stream_calib.config import Config
from stream_calib.config_identity import semantic_hash
from stream_calib.errors import StateUnavailableError
from workers.cli_common import DEFAULT_CONFIG, ConfigOption, JsonOption, console, load, print_json, readable_errors
from workers.cli_models import ModelOption, VersionOption, known_keys, selected_keys
from workers.deployment import connect_state
from workers.role import wall_clock_ms
from workers.status import DeploymentStatus
from workers.status_tables import status_tables

_LOOK_EVERY_S = 2.0


app = typer.Typer()


@app.command(epilog="Examples: stream-calib status ; stream-calib status --watch ; ... status --json")
def status(
    model: ModelOption = None,
    version: VersionOption = None,
    watch: Annotated[bool, typer.Option("--watch", help="Look again every two seconds, until Ctrl-C.")] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Where everything stands: how far behind the log, watermarks, panes, snapshot, refits, events, alerts, processes;
    of every model key, or of those that are named."""
    with readable_errors():
        loaded = load(config)
        client = connect_state(loaded)
        keys = selected_keys(known_keys(client, loaded), model, version)
        look = DeploymentStatus(client, loaded, keys)
        facts = look.facts(wall_clock_ms())
        _warn_of_other_settings(facts, loaded, config)
        if as_json:
            print_json(facts)
        elif watch:
            _watch(look, facts)
        else:
            console.print(*status_tables(facts), sep="\n")


def _watch(look: DeploymentStatus, facts: dict[str, Any]) -> None:
    """Tables that follow what happens; while the state is away, the last ones with the reason. Where the output is no
    terminal, each look is printed behind the one before."""
    live = Live(console=console, screen=True, auto_refresh=False) if console.is_terminal else nullcontext()
    with live, suppress(KeyboardInterrupt):
        away = ""
        while True:
            shown = Group(*([Text(away, style="red")] if away else []), *status_tables(facts))
            if isinstance(live, Live):
                live.update(shown, refresh=True)
            else:
                console.print(shown)
            time.sleep(_LOOK_EVERY_S)
            try:
                facts, away = look.facts(wall_clock_ms()), ""
            except StateUnavailableError as error:
                away = str(error)


def _warn_of_other_settings(facts: dict[str, Any], config: Config, file: Path) -> None:
    generation = semantic_hash(config)
    others = [model["model"] for model in facts["models"] if model["generation"] not in (None, generation)]
    if others:
        print(
            f"warning: the state of {', '.join(others)} was made under other settings than those of {file} (pane,"
            " horizon, latenesses, shards or what else decides how records are counted); the times shown may be wrong",
            file=sys.stderr,
        )
