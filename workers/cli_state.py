"""`stream-calib state`: the generations of the stored state; rebuilding, switching, dropping; backups."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from stream_calib.config import Config
from stream_calib.errors import ConfigurationError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import RedisClient
from workers.cli_common import DEFAULT_CONFIG, ConfigOption, JsonOption, console, load, print_json, readable_errors
from workers.cli_models import ModelOption, VersionOption, known_keys, selected_key, selected_keys
from workers.deployment import connect_state, open_log
from workers.generation_changes import drop_generation, switch_to
from workers.generation_facts import GenerationFacts, generation_facts
from workers.rebuild import Rebuild
from workers.state_transfer import Transferred, export_states, import_states
from workers.time_text import utc_minute, utc_of_pane

app = typer.Typer(no_args_is_help=True, help="Generations of the stored state; backups.")

GenerationArgument = Annotated[int, typer.Argument(help="Number of the generation, as in `state list`.")]
FileArgument = Annotated[Path, typer.Argument(help="The file.")]


@app.command("list", epilog="Example: stream-calib state list --model flights --json")
def list_generations(
    model: ModelOption = None,
    version: VersionOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Every generation of each model key: live or not, its size in Redis, how far its panes have come, its snapshot.

    Goes through all names that the server has.
    """
    with _connected(config) as (loaded, client):
        keys = selected_keys(known_keys(client, loaded), model, version)
        facts = [one for key in keys for one in generation_facts(client, loaded, key)]
    if as_json:
        print_json(
            [{**one._asdict(), "key": None, "model": one.key.model, "version": one.key.version} for one in facts]
        )
        return
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("model", "no.", "", "made under", "keys", "MB", "first pane (UTC)", "matured", "snapshot"):
        table.add_column(column, overflow="fold")
    for one in facts:
        table.add_row(*_cells(one))
    console.print(table)


@app.command(epilog="Example: stream-calib state rebuild --config new.toml")
def rebuild(
    model: ModelOption = None,
    version: VersionOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Make a state under this configuration from the log, beside the live one, which is worked on and served meanwhile.

    Run it again and it goes on where it stands. `state switch` makes the result live. It reads `blocks` and `labels`
    from the earliest records that the log has, so what retention has dropped is not in it. What calibrate packs into
    `blocks` (attributes, unit, sample_rate, keep_rate) cannot be made anew.
    """
    results: list[dict[str, Any]] = []
    with _connected(config) as (loaded, client), open_log(loaded) as log:
        for key in selected_keys(known_keys(client, loaded), model, version):
            with closing(Rebuild(client, log, loaded, key)) as work:
                _follow(work, key)
                results.append(_result(work, key))
                if not as_json:
                    _tell(work, key)
    if as_json:
        print_json(results)


@app.command(epilog="Example: stream-calib state switch 1 --config new.toml")
def switch(
    generation: GenerationArgument,
    model: ModelOption = None,
    version: VersionOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Make a rebuilt generation the live one. Refused, with its lag, where it is more than a pane behind.

    calibrate serves by its snapshot from the next look on. monitor, refit and alert of the old configuration end; start
    them with the new one.
    """
    with _connected(config) as (loaded, client):
        key = selected_key(known_keys(client, loaded), model, version)
        before = switch_to(client, loaded, key, generation)
    console.print(
        f"generation {generation} of {key} is live. Start monitor, refit and alert with {config}; when all is well,"
        f" `stream-calib state drop {before}` deletes the one before"
    )


@app.command(epilog="Example: stream-calib state drop 0 --yes")
def drop(
    generation: GenerationArgument,
    model: ModelOption = None,
    version: VersionOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Delete a generation that is not live."""
    with _connected(config) as (loaded, client):
        key = selected_key(known_keys(client, loaded), model, version)
        if not yes:
            typer.confirm(f"Delete generation {generation} of {key}, which cannot be undone?", abort=True)
        deleted = drop_generation(client, key, generation)
    console.print(f"generation {generation} of {key} is deleted: {deleted:,} keys of the Redis-compatible server")


@app.command("export", epilog="Example: stream-calib state export backup.scs --model flights")
def export_file(
    file: FileArgument, model: ModelOption = None, version: VersionOption = None, config: ConfigOption = DEFAULT_CONFIG
) -> None:
    """Write the live state of the model keys to a file. monitor, refit and alert have to be stopped; calibrate may go
    on."""
    with _connected(config) as (loaded, client):
        keys = selected_keys(known_keys(client, loaded), model, version)
        if not keys:
            raise ConfigurationError("there is no model key yet, so there is nothing to export")
        written, digest = export_states(client, loaded, keys, file)
    _tell_transferred(written)
    console.print(f"{file}: {file.stat().st_size:,} bytes, SHA-256 of the content {digest}", soft_wrap=True)


@app.command("import", epilog="Example: stream-calib state import backup.scs")
def import_file(file: FileArgument, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Put the states of a file where their model keys have none. The file is checked as a whole before anything is
    written; the roles go on from there."""
    with _connected(config) as (loaded, client):
        _tell_transferred(import_states(client, loaded, file, console.print))


@contextmanager
def _connected(config: Path) -> Iterator[tuple[Config, RedisClient]]:
    with readable_errors():
        loaded = load(config)
        with closing(connect_state(loaded)) as client:
            yield loaded, client


def _cells(one: GenerationFacts) -> tuple[str, ...]:
    panes = [one.cursors[name] for name in ("first_pane", "matured")]
    shown = ["" if p is None or one.pane_ms is None else utc_of_pane(p, one.pane_ms) for p in panes]
    made_under = "no state yet" if one.generation is None else f"{one.generation}{' (this file)' if one.ours else ''}"
    live = "live" if one.live else ""
    size = f"{one.bytes / 1e6:,.1f}"
    return (str(one.key), str(one.number), live, made_under, f"{one.keys:,}", size, *shown, one.snapshot or "")


def _follow(work: Rebuild, key: ModelKey) -> None:
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} records"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as shown:
        task = shown.add_task(str(key))
        looked_at = 0.0
        while True:
            if (now := time.monotonic()) - looked_at >= 1:
                looked_at = now
                done, total = work.progress()
                shown.update(task, completed=done, total=total)
            if not work.step():
                done, total = work.progress()
                shown.update(task, completed=done, total=total)
                return


def _result(work: Rebuild, key: ModelKey) -> dict[str, Any]:
    done, total = work.progress()
    snapshot = work.state.snapshots.current()
    facts = {"model": key.model, "version": key.version, "generation": work.number, "records": done, "of": total}
    return {**facts, "snapshot": snapshot, **work.begin()._asdict()}


def _tell(work: Rebuild, key: ModelKey) -> None:
    begin, snapshot = work.begin(), work.state.snapshots.current()
    console.print(f"{key}: generation {work.number} has caught up; snapshot {snapshot or 'none yet'}")
    if begin.ours_ms is None:
        console.print("  no pane has closed in it yet")
    else:
        console.print(f"  its first pane begins at {utc_minute(begin.ours_ms)} UTC")
        if begin.live_ms is not None and begin.live_ms < begin.ours_ms:
            console.print(
                f"  missing: what the live one has from {utc_minute(begin.live_ms)} on; the log has dropped it"
            )
    if begin.labels_from_ms is not None:
        console.print(
            f"  scores before {utc_minute(begin.labels_from_ms)} are left out: the log has dropped their labels"
        )


def _tell_transferred(found: list[Transferred]) -> None:
    for one in found:
        console.print(f"{one.key}: made under {one.generation}")
