"""`stream-calib snapshot at`: what was live then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from stream_calib.errors import ConfigurationError
from stream_calib.events.event_times import iso8601_ms
from stream_calib.snapshot.live_at import LiveAtPane, live_at_pane, move_at
from workers.cli_common import DEFAULT_CONFIG, ConfigOption, JsonOption, console, load, print_json, readable_errors
from workers.cli_models import ModelOption, VersionOption, open_selected
from workers.time_text import utc_minute, utc_of_pane

app = typer.Typer()


@app.command(epilog="Examples: stream-calib snapshot at 2013-03-01T10:00 ; ... at 2013-03-01T10:00+01:00 --json")
def at(
    time: Annotated[str, typer.Argument(help="ISO 8601, as 2013-03-01T10:00; UTC where it names no zone.")],
    model: ModelOption = None,
    version: VersionOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """What was live at a time, since when and why: by the clock (which snapshot readers were told to serve then), and
    by event time (which one events of that time were judged by, and which ones they were served by)."""
    with readable_errors():
        time_ms = iso8601_ms(time)
        if time_ms is None:
            raise ConfigurationError(f"{time} is no time: write it as 2013-03-01T10:00, with a zone if not UTC")
        loaded = load(config)
        state = open_selected(loaded, model, version)
        pane_ms = loaded.windows.pane_ms
        move = move_at(state.snapshots.history(), time_ms)
        found = live_at_pane(state.store, state.snapshots.log(), time_ms // pane_ms)
    if as_json:
        print_json({"time_ms": time_ms, "by_wall_time": move, "by_event_time": asdict(found)})
        return
    table = Table(title=f"{state.model_key} at {utc_minute(time_ms)} UTC", title_justify="left", show_header=False)
    for row in (*_by_wall_time(move), *_by_event_time(found, pane_ms)):
        table.add_row(*row)
    console.print(table)


def _by_wall_time(move: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    if move is None:
        return [("by the clock", "none that is on record: scores were served as they came")]
    what = "rolled back to" if move["what"] == "rollback" else "published"
    return [
        ("by the clock", move["version"]),
        ("  since", f"{utc_minute(move['time_ms'])} UTC, {what} by {move['actor']}: {move['reason']}"),
    ]


def _by_event_time(found: LiveAtPane, pane_ms: int) -> list[tuple[str, str]]:
    bounds = f"{utc_of_pane(found.pane, pane_ms)} until {utc_of_pane(found.pane + 1, pane_ms)}"
    if not found.decided:
        current = "not decided yet"
    elif found.forgotten:
        current = "no longer known"
    else:
        current = found.version or "none: scores were served as they came"
    if found.served is None:
        served = "not counted: the pane is not matured, or no longer kept"
    else:
        parts = [f"{n:,} scores by {version or 'the raw score'}" for version, n in found.served.items()]
        served = ", ".join(parts) or "no scores"
    return [("by event time, pane", bounds), ("  judged by", current), ("  served", served)]
