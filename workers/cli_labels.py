"""`stream-calib labels`: labels that come as files."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from stream_calib.errors import StreamCalibError
from stream_calib.transport.port import Log
from workers.cli_common import DEFAULT_CONFIG, ConfigOption, JsonOption, console, load, print_json, readable_errors
from workers.deployment import open_log
from workers.label_files import LabelFiles
from workers.labels_load import LabelsLoad
from workers.role import wall_clock_ms
from workers.stopping import stopped_by_signals
from workers.time_text import utc_minute

app = typer.Typer(no_args_is_help=True, help="Load labels that come as files.")


@app.callback()
def _labels() -> None:
    """So that `load` stays a command of its own while it is the only one."""


@app.command(
    "load", epilog="Examples: stream-calib labels load outcomes.csv.gz --dry-run ; stream-calib labels load day*.ndjson"
)
def load_labels(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="NDJSON (.ndjson, .jsonl, .json) or CSV (.csv), packed .gz, .bz2, .xz or .zst; or Parquet (.parquet).",
            show_default=False,
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and check, and write nothing.")] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Write labels from files into the labels topic, in the order of their times.

    Fields are read by the paths and units of the section labels; columns are named as the paths. All files are sorted
    together, and each partition gets a clock record at the end. Rows that are no labels are counted and not written;
    the code is then 1. Safe to repeat.
    """
    with readable_errors():
        loaded = load(config)
        found = LabelFiles(files, loaded.labels)
        stop, started = threading.Event(), time.monotonic()
        with open_log(loaded) as log, TemporaryFile() as values, stopped_by_signals(stop):
            log.partitions(loaded.topics.labels)  # UnknownTopicError says that it is not there
            work = LabelsLoad(loaded, found, values, wall_clock_ms, stop)
            finished, error = _run(log, work, found, dry_run=dry_run)
    state = work.state
    outcome = {
        "into": loaded.topics.labels,
        "dry_run": dry_run,
        "finished": finished,
        "read": state.read,
        "rejected": dict(sorted(state.rejected.items())),
        "rejected_examples": state.examples,
        "skewed": state.skewed,
        "written": state.written,
        "first_ms": state.first_ms,
        "last_ms": state.last_ms,
        "clock_ms": state.clock_ms,
        "seconds": round(time.monotonic() - started, 3),
        "error": error,
    }
    if as_json:
        print_json(outcome)
    else:
        _print(outcome)
    if not finished or state.rejected:
        raise typer.Exit(1)


def _run(log: Log, work: LabelsLoad, files: LabelFiles, *, dry_run: bool) -> tuple[bool, str | None]:
    """Whether it came to its end, and what kept it from writing on."""
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        reading = progress.add_task("reading", total=files.total_bytes)
        if not work.read(lambda: progress.update(reading, completed=files.bytes_read)):
            return False, None
        progress.update(reading, completed=files.total_bytes)
        if dry_run:
            return True, None
        writing = progress.add_task("writing", total=work.state.accepted)
        try:
            return work.write(log, lambda: progress.update(writing, completed=work.state.written)), None
        except StreamCalibError as error:
            return False, str(error)


def _print(outcome: dict[str, Any]) -> None:
    accepted = outcome["read"] - sum(outcome["rejected"].values())
    span = ""
    if outcome["first_ms"] is not None:
        span = f", {utc_minute(outcome['first_ms'])} to {utc_minute(outcome['last_ms'])} UTC"
    console.print(f"{outcome['read']:,} rows, {accepted:,} labels{span}")
    for reason, count in outcome["rejected"].items():
        console.print(f"{count:,} rows are no labels: {reason}")
    for example in outcome["rejected_examples"]:
        console.print(f"  {example}")
    if outcome["skewed"]:
        console.print(
            f"{outcome['skewed']:,} labels are dated further in the future than windows.max_clock_skew: the monitor"
            " will count them as skewed, and no more"
        )
    if outcome["dry_run"]:
        console.print(f"nothing was written into {outcome['into']}")
        return
    console.print(f"{outcome['written']:,} labels into {outcome['into']} in {outcome['seconds']:.1f} s")
    if outcome["clock_ms"] is not None:
        console.print(f"clock of every partition is at {utc_minute(outcome['clock_ms'])} UTC or later")
    if outcome["error"] is not None:
        console.print(f"error: {outcome['error']}", style="red")
    if not outcome["finished"]:
        console.print("it did not come to its end; repeat the same command, labels that are there already count once")
