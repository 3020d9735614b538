"""`stream-calib replay`."""

from __future__ import annotations

import shlex
import threading
import time
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from stream_calib.config import Config
from stream_calib.errors import ConfigurationError, StreamCalibError
from stream_calib.events.topic_range import Bound
from stream_calib.transport.port import Log
from workers.cli_common import DEFAULT_CONFIG, ConfigOption, JsonOption, console, load, print_json, readable_errors
from workers.deployment import open_log
from workers.replay import Pace, Replay, Replayed
from workers.replay_source import FileSource, Source, TopicSource
from workers.replay_times import EventTimes
from workers.stopping import stopped_by_signals
from workers.time_text import utc_minute


class Clock(str, Enum):
    last = "last"
    end = "end"


app = typer.Typer()


@app.command(
    epilog="Examples: stream-calib replay scores.jsonl.gz --into scores --rate 2000 ; stream-calib replay --topic"
    " scores-2024 --from 2024-05-01T00:00Z --until 2024-06-01T00:00Z --into scores --speed 60 --clock last"
)
def replay(
    into: Annotated[str, typer.Option("--into", help="The topic to write into.")],
    files: Annotated[
        list[Path] | None, typer.Argument(help="JSON lines, one record a line; .gz is unpacked.", show_default=False)
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Read this topic in place of files.")] = None,
    since: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            help="Topics: a time of the log's timestamps (2024-05-01T00:00Z), an offset (1200), or one of a partition"
            " (3:1200; repeatable). Files: lines to skip.",
        ),
    ] = None,
    until: Annotated[
        list[str] | None,
        typer.Option("--until", help="Topics: likewise; it is not replayed itself. Without it: up to now."),
    ] = None,
    partition: Annotated[list[int] | None, typer.Option("--partition", help="Topics: only these partitions.")] = None,
    kcat: Annotated[
        bool, typer.Option("--kcat", help="Lines are records as `kcat -C -J` writes them, not values alone.")
    ] = False,
    rate: Annotated[float | None, typer.Option("--rate", min=0.001, help="Events a second.")] = None,
    speed: Annotated[float | None, typer.Option("--speed", min=0.001, help="So many times event time.")] = None,
    clock: Annotated[
        Clock | None,
        typer.Option(
            "--clock",
            help="At the end, a control record to each partition: `last` moves its clock to the last event time, `end`"
            " also closes it.",
        ),
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Write records from files, or a range of a topic, into a topic.

    Key, value and headers stay as they are, and the partition where both topics have as many; nothing is added.
    Without --rate or --speed it goes as fast as it can. Ctrl-C stops it, and it says how to go on from there.

    Lines of files are values, without keys. With --kcat they are objects with payload, key, headers and partition;
    payload_base64 and key_base64 hold bytes that are not UTF-8.
    """
    with readable_errors():
        loaded = load(config)
        _check_options(files, topic, into, rate, speed, until, partition, kcat=kcat)
        with open_log(loaded) as log:
            times = EventTimes(loaded, into)
            _check_target(log, loaded, into, times, clock, speed)
            source = _source(log, files or [], topic, into, times, since or [], until or [], partition or [], kcat=kcat)
            outcome = _run(log, into, source, Pace(rate, speed), clock)
    if as_json:
        print_json(outcome)
    else:
        _print(outcome)
    if not outcome["finished"]:
        raise typer.Exit(1)


def _check_options(
    files: list[Path] | None,
    topic: str | None,
    into: str,
    rate: float | None,
    speed: float | None,
    until: list[str] | None,
    partition: list[int] | None,
    *,
    kcat: bool,
) -> None:
    if bool(files) == bool(topic):
        raise ConfigurationError("say what to replay: either files, or a topic with --topic")
    if files and (until or partition):
        raise ConfigurationError("--until and --partition are for topics; of files, --from LINES skips lines")
    if topic and kcat:
        raise ConfigurationError("--kcat says how the lines of files are written; a topic has none")
    if topic == into:
        raise ConfigurationError(
            f"{into} would be read and written at once, without an end; write --into another topic"
        )
    if rate is not None and speed is not None:
        raise ConfigurationError("--rate and --speed are two paces; give one of them")


def _check_target(
    log: Log, config: Config, into: str, times: EventTimes, clock: Clock | None, speed: float | None
) -> None:
    log.partitions(into)  # UnknownTopicError says that it is not there
    if (clock or speed is not None) and not times.known:
        option = "--clock" if clock else "--speed"
        raise ConfigurationError(
            f"{option} needs the records' event times: {into} must be topics.scores or topics.labels of the"
            " configuration, with time.path set in that section"
        )
    warnings = []
    if into in (config.topics.scores, config.topics.labels) and not times.known:
        warnings.append(f"records of {into} have no event time of their own: they get the time of this replay")
    if into == config.topics.scores and config.serving.clock_records == "wall":
        warnings.append(
            "serving.clock_records is wall: whenever calibrate has read everything, its clock moves to now, and older"
            " records are late; set it to off for a deployment that replays history"
        )
    if into == config.topics.labels and config.windows.idle_timeout_ms is not None:
        warnings.append("windows.idle_timeout is on: label partitions that get nothing are left out; off for history")
    for warning in warnings:
        Console(stderr=True).print(f"warning: {warning}", style="yellow", markup=False, highlight=False)


def _source(
    log: Log,
    files: list[Path],
    topic: str | None,
    into: str,
    times: EventTimes,
    since: list[str],
    until: list[str],
    partitions: list[int],
    *,
    kcat: bool,
) -> Source:
    if topic is not None:
        bounds = [[Bound.parse(text) for text in texts] for texts in (since, until)]
        return TopicSource(log, topic, into, times, since=bounds[0], until=bounds[1], partitions=partitions)
    if len(since) > 1 or not all(text.isascii() and text.isdigit() for text in since):
        raise ConfigurationError(f"--from {' '.join(since)}: of files, it is the number of lines to skip")
    return FileSource(files, into, times, kcat=kcat, skip_lines=int(since[0]) if since else 0)


def _run(log: Log, into: str, source: Source, pace: Pace, clock: Clock | None) -> dict[str, Any]:
    stop, started, error = threading.Event(), time.monotonic(), None
    replay = Replay(log, into, source, pace, stop)
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[what]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with stopped_by_signals(stop), Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(f"into {into}", total=source.total, what="")

        def seen(state: Replayed) -> None:
            rate = state.written / max(time.monotonic() - started, 1e-9)
            at = "" if state.last_ms is None else f", {utc_minute(state.last_ms)}"
            what = f"{state.written:,} events, {rate:,.0f}/s{at}"
            progress.update(task, completed=source.progress(state.done), what=what)

        try:
            replay.run(seen)
            clock_ms = None
            if clock is not None and replay.state.finished and replay.state.last_ms is not None:
                clock_ms = replay.write_clocks(clock.value)
        except StreamCalibError as failure:
            if not replay.state.done:
                raise
            error, clock_ms, replay.state.finished = str(failure), None, False
        if replay.state.finished:
            progress.update(task, completed=source.total)
    state = replay.state
    return {
        "into": into,
        "finished": state.finished,
        "written": state.written,
        "left_out": state.left_out,
        "seconds": round(time.monotonic() - started, 3),
        "first_ms": state.first_ms,
        "last_ms": state.last_ms,
        "clock_ms": clock_ms,
        "error": error,
        "go_on_with": None if state.finished else source.resume_options(state.done),
    }


def _print(outcome: dict[str, Any]) -> None:
    rate = outcome["written"] / max(outcome["seconds"], 1e-3)
    console.print(f"{outcome['written']:,} events into {outcome['into']} in {outcome['seconds']:.1f} s ({rate:,.0f}/s)")
    if outcome["left_out"]:
        console.print(f"{outcome['left_out']:,} control records left out: the topics have other numbers of partitions")
    if outcome["clock_ms"] is not None:
        console.print(f"clock of every partition moved to {utc_minute(outcome['clock_ms'])} UTC")
    if outcome["error"] is not None:
        console.print(f"error: {outcome['error']}", style="red")
        console.print("what was being written then may be there already, and come twice when you go on")
    if outcome["go_on_with"] is not None:
        console.print("stopped; to go on from there, give the same command with these in place of --from and --until:")
        console.print(f"  {shlex.join(outcome['go_on_with'])}", soft_wrap=True)
