"""`stream-calib models`: list the model keys of a deployment, and retire one."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from stream_calib.errors import ConfigurationError
from stream_calib.events.contracts import ModelKey
from workers.cli_common import DEFAULT_CONFIG, ConfigOption, JsonOption, console, load, print_json, readable_errors
from workers.deployment import connect_state, open_log
from workers.retirement import KeyUse, Retirements
from workers.role import wall_clock_ms
from workers.time_text import age, utc_minute

app = typer.Typer(no_args_is_help=True, help="List the model keys of the deployment, and retire old ones.")


@app.command("list", epilog="Example: stream-calib models list --json")
def list_models(config: ConfigOption = DEFAULT_CONFIG, as_json: JsonOption = False) -> None:
    """Every model key in order of registration, with its newest score and snapshot; then those that were retired."""
    with readable_errors():
        loaded = load(config)
        with closing(connect_state(loaded)) as client:
            uses = Retirements(client, loaded).uses()
    if as_json:
        print_json([_plain(use) for use in uses])
        return
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("model", "version", "", "newest score (UTC)", "snapshot"):
        table.add_column(column, no_wrap=column == "")
    for use in uses:
        newest = "" if use.newest_score_ms is None else f"before {utc_minute(use.newest_score_ms)}"
        table.add_row(use.key.model, use.key.version, _what(use), newest, use.snapshot or "")
    console.print(table)
    active = sum(use.retired_ms is None for use in uses)
    console.print(f"{active} of at most {loaded.model.max_keys} (model.max_keys)")


@app.command(epilog="Example: stream-calib models retire churn 2024-05 --delete-state")
def retire(
    name: Annotated[str, typer.Argument(help="Name of the model.")],
    version: Annotated[str, typer.Argument(help="Its version.")],
    delete_state: Annotated[
        bool,
        typer.Option(
            "--delete-state", help="Also delete its counts, snapshots and decision log; also of a retired key."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Take a model key that has no traffic any more out of the deployment: it no longer counts for model.max_keys, and
    no role works on it.

    Refused where the configuration names it, where a process has served it within the hour, and where its newest score
    is less than a day older than the newest event. Labels of its scores that are still to come are not counted. Scores
    of it that come later register it anew; it goes on with its state and snapshot then, unless they were deleted.
    """
    with readable_errors():
        loaded = load(config)
        try:
            key = ModelKey.of(name, version)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error
        with closing(connect_state(loaded)) as client:
            retirements = Retirements(client, loaded)
            use = retirements.use(key)
            if use.retired_ms is not None and not delete_state:
                raise ConfigurationError(f"{key} is retired already; --delete-state deletes what is kept of it")
            if use.retired_ms is None and (why := use.in_use()) is not None:
                raise ConfigurationError(f"{key} cannot be retired: {why}")
            if not yes:
                typer.confirm(_question(use, delete_state), abort=True)
            if use.retired_ms is None:
                with open_log(loaded) as log:
                    retirements.retire(key, log)
                console.print(f"{key} is retired")
            if delete_state:
                deleted = retirements.delete_state(key, console.print)
                console.print(f"its state is deleted: {deleted:,} keys of the Redis-compatible server")


def _question(use: KeyUse, delete_state: bool) -> str:
    doing = "retire" if use.retired_ms is None else "delete the state of"
    newest = "none" if use.newest_score_ms is None else f"before {utc_minute(use.newest_score_ms)} UTC"
    what = f"{doing} {use.key} (newest score: {newest}; snapshot: {use.snapshot or 'none'})"
    if delete_state and use.retired_ms is None:
        what += " and delete its state"
    return what[0].upper() + what[1:] + (", which cannot be undone?" if delete_state else "?")


def _what(use: KeyUse) -> str:
    if use.retired_ms is not None:
        kept = "state deleted" if use.state_deleted else "state kept"
        return f"retired {age(wall_clock_ms() - use.retired_ms)} ago, {kept}"
    if use.constant:
        return "of the configuration"
    return "in use" if use.in_use() is not None else "no traffic"


def _plain(use: KeyUse) -> dict[str, Any]:
    facts = use._asdict()
    facts.pop("key")
    return {"model": use.key.model, "version": use.key.version, **facts, "in_use": use.in_use()}
