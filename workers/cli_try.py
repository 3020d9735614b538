"""`stream-calib try`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from stream_calib.backtest.report.page import render_report
from stream_calib.backtest.trial.columns import TrialColumns
from stream_calib.backtest.trial.trial import TrialRun, try_files
from stream_calib.config import MOST_HORIZON_MS
from stream_calib.config_values import duration_ms
from stream_calib.errors import ConfigurationError
from workers.backtest_outputs import Outputs, write_file
from workers.backtest_places import files_named
from workers.cli_common import console, readable_errors
from workers.try_text import trial_text

app = typer.Typer()

_EPILOG = (
    "Examples: stream-calib try predictions.parquet --score p --label churned --time scored_at --group region ;"
    " stream-calib try 'log-*.csv.gz' --score prediction --label target --time timestamp --time-unit ms --id id"
    " --group region --group device --horizon 14d --label-time seen_at --html report.html"
)


class Unit(str, Enum):
    s = "s"
    ms = "ms"
    us = "us"
    iso8601 = "iso8601"


class Scale(str, Enum):
    probability = "probability"
    logit = "logit"
    percent = "percent"


@app.command("try", epilog=_EPILOG)
def try_(
    files: Annotated[
        list[Path],
        typer.Argument(help="Parquet, CSV or NDJSON, or patterns of their names; CSV and NDJSON also .gz or .zst."),
    ],
    score: Annotated[str, typer.Option("--score", metavar="COLUMN", help="The model's score.")],
    label: Annotated[
        str, typer.Option("--label", metavar="COLUMN", help="The outcome: 0, 1, true, false; empty: not known yet.")
    ],
    time: Annotated[str, typer.Option("--time", metavar="COLUMN", help="When the score was made.")],
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="COLUMN", help="What groups are made of: region, device. Repeatable."),
    ] = None,
    event_id: Annotated[
        str | None,
        typer.Option("--id", metavar="COLUMN", help="Where predictions may be there twice; else each row counts."),
    ] = None,
    label_time: Annotated[
        str | None,
        typer.Option("--label-time", metavar="COLUMN", help="When the outcome was known; else at the horizon."),
    ] = None,
    horizon: Annotated[str, typer.Option(help="How long after its score a label may come.")] = "7d",
    time_unit: Annotated[
        Unit | None, typer.Option("--time-unit", help="What the numbers of a column of times count.")
    ] = None,
    scale: Annotated[Scale, typer.Option("--scale", help="Of the score.")] = Scale.probability,
    zone: Annotated[str, typer.Option("--zone", help="Of times without one, as America/New_York.")] = "UTC",
    html: Annotated[Path | None, typer.Option("--html", help="Also write the report of the backtest here.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write what is printed, for programs.")] = None,
) -> None:
    """What is wrong with the scores of a file, in which groups, since when, and what stream-calib would have done.

    One table of predictions with their outcomes is enough: no configuration, no Kafka, no Redis; nothing is written
    but the files that are asked for.
    """
    with readable_errors():
        outputs = Outputs(html, json_file, None)
        outputs.check(inputs=files_named(map(str, files)))
        _check_zone(zone)
        columns = TrialColumns(
            score=score,
            label=label,
            time=time,
            groups=group or [],
            id=event_id,
            label_time=label_time,
            time_unit=None if time_unit is None else time_unit.value,
            scale=scale.value,
            zone=zone,
        )
        bars = TextColumn("[bold]{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
        with Progress(*bars, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("reading", total=None)

            def seen(what: str, done: int, of: int) -> None:
                progress.update(task, description=what, completed=done, total=of if done else None)

            try:
                run = try_files(files, columns, _horizon_ms(horizon), seen)
            except KeyboardInterrupt:
                progress.stop()
                Console(stderr=True).print("stopped; nothing has been written", highlight=False)
                raise typer.Exit(130) from None
        console.print(trial_text(run.trial))
        _write(run, outputs)


def _horizon_ms(text: str) -> int:
    try:
        found = duration_ms(text)
    except ValueError as error:
        raise ConfigurationError(f"--horizon {text}: {error}") from error
    if not 0 < found <= MOST_HORIZON_MS:
        raise ConfigurationError(f"--horizon {text}: it must be longer than 0, and 45d at most, as windows.horizon")
    return found


def _check_zone(zone: str) -> None:
    try:
        ZoneInfo(zone)
    except (ValueError, OSError, KeyError) as error:  # ZoneInfoNotFoundError is a KeyError
        raise ConfigurationError(f"--zone {zone}: there is no such zone; write one as America/New_York") from error


def _write(run: TrialRun, outputs: Outputs) -> None:
    outputs.write_json(run.trial.encode())
    if outputs.html is not None:
        write_file(outputs.html, render_report(run.document).encode())
        console.print(f"report: {outputs.html}")
