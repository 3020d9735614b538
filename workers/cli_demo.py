"""`stream-calib demo`."""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from stream_calib.demo.figures import figures_table
from stream_calib.demo.flights import load_flights
from stream_calib.demo.report import render_report
from stream_calib.transport.embedded_server import EmbeddedServer
from workers.cli_common import console, load, readable_errors
from workers.demo import LockStep, demo_config_file, refit_outcomes, role_processes
from workers.demo_results import collect
from workers.deployment import open_log, open_state
from workers.stopping import stopped_by_signals
from workers.topic_setup import create_topics

app = typer.Typer()


@app.command(
    epilog="Examples: stream-calib demo ; stream-calib demo --days 60 --json figures.json --output demo-output"
)
def demo(
    output: Annotated[Path, typer.Option(help="Folder for the report, the figures and the processes' logs.")] = Path(
        "demo-output"
    ),
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the figures here, for programs.")] = None,
    days: Annotated[int | None, typer.Option(min=20, help="Only the first so many days of the 306.")] = None,
) -> None:
    """Stream ten months of flights out of New York through all roles, and report what calibration did for them."""
    stop = Event()
    with readable_errors(), stopped_by_signals(stop), ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer())
        environ = os.environ | {"STREAM_CALIB_LOG_URL": server.url, "STREAM_CALIB_REDIS_URL": server.url}
        config_file = demo_config_file()
        os.environ.update(environ)
        config = load(config_file)
        log = stack.enter_context(open_log(config))
        state = open_state(config)
        stack.callback(state.close)
        create_topics(log, config)
        roles = stack.enter_context(role_processes(config_file, environ, output / "logs"))
        flights = load_flights()
        used = flights.days()[:days]
        columns = (
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("days"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[what]}"),
        )
        started = time.monotonic()
        with Progress(*columns, console=console) as progress:
            LockStep(log, state, config, flights, roles, stop).run(used, progress)
        seconds = time.monotonic() - started
        data = collect(log, state, config, flights, len(used), seconds)
        report = output / "report.html"
        report.write_text(render_report(data), encoding="utf-8")
        figures = data.figures.model_dump_json(indent=2)
        for path in (output / "figures.json", json_file):
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(figures + "\n", encoding="utf-8")
        alerts = Counter(alert.kind for alert in data.alerts)
        console.print(figures_table(data.figures, refit_outcomes(state)[1], alerts))
        console.print(f"report: {report}")
