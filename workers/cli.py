"""`stream-calib`: the command line."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from threading import Event
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from stream_calib.errors import StreamCalibError
from workers import (
    cli_alerts,
    cli_config,
    cli_doctor,
    cli_fusion,
    cli_labels,
    cli_refits,
    cli_replay,
    cli_retirement,
    cli_snapshot_at,
    cli_snapshot_changes,
    cli_snapshot_held,
    cli_snapshot_shadow,
    cli_snapshots,
    cli_state,
    cli_status,
    cli_topics,
)
from workers.cli_common import DEFAULT_CONFIG, ConfigOption, console, load, plain_logging, readable_errors
from workers.deployment import open_log, open_state
from workers.logs import set_up_logging
from workers.run import ROLES, run_roles
from workers.stopping import stopped_by_signals
from workers.topic_setup import create_topics

_LOG = logging.getLogger(__name__)

HTTP_LISTEN_VARIABLE = "STREAM_CALIB_HTTP_LISTEN"

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Streaming calibration: scores become probabilities that are true overall and within groups.",
    epilog="Start with `stream-calib demo`: ten months of real flights in two minutes, nothing else needed.",
)
app.add_typer(cli_config.app, name="config")
app.add_typer(cli_topics.app, name="topics")
for commands in (cli_snapshot_held, cli_snapshot_shadow, cli_snapshot_at, cli_refits):
    cli_snapshots.app.add_typer(commands.app)
app.add_typer(cli_snapshots.app, name="snapshot")
app.add_typer(cli_alerts.app, name="alerts")
app.add_typer(cli_retirement.app, name="models")
app.add_typer(cli_state.app, name="state")
app.add_typer(cli_fusion.app, name="fusion")
app.add_typer(cli_labels.app, name="labels")
app.command("refit", epilog='Example: stream-calib refit --model flights --reason "new fares since Monday"')(
    cli_snapshot_changes.request_refit
)
app.command("status", epilog="Examples: stream-calib status ; stream-calib status --watch ; ... status --json")(
    cli_status.status
)
app.command(
    "doctor", epilog="Examples: stream-calib doctor --config prod.toml ; stream-calib doctor --rate 1200 --json"
)(cli_doctor.doctor)
app.command(
    "replay",
    epilog="Examples: stream-calib replay scores.jsonl.gz --into scores --rate 2000 ; stream-calib replay --topic"
    " scores-2024 --from 2024-05-01T00:00Z --until 2024-06-01T00:00Z --into scores --speed 60 --clock last",
)(cli_replay.replay)


@app.callback()
def _before_every_command() -> None:
    plain_logging()


class LogLevel(str, Enum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


LogLevelOption = Annotated[
    LogLevel | None,
    typer.Option(envvar="STREAM_CALIB_LOG_LEVEL", case_sensitive=False, help="In place of telemetry.log_level."),
]

RoleName = Enum("RoleName", {name: name for name in ROLES}, type=str)  # type: ignore[misc]  # the roles are a table, not literals


@app.command(
    epilog="Example: stream-calib run --role calibrate --role monitor --role refit --role alert --config prod.toml"
)
def run(
    role: Annotated[
        list[RoleName],
        typer.Option(
            "--role",
            metavar="ROLE",
            help="calibrate, monitor, refit, alert or serve; given several times: one process, a thread each.",
        ),
    ],
    config: ConfigOption = DEFAULT_CONFIG,
    http: Annotated[
        str | None, typer.Option(help="host:port of /metrics, /healthz and /readyz, in place of http.listen.")
    ] = None,
    log_level: LogLevelOption = None,
) -> None:
    """Run one or several roles until SIGTERM or Ctrl-C.

    Topics have to be there (see `topics create`); only the embedded log gets those that are missing.
    """
    _run([name.value for name in dict.fromkeys(role)], config, http, log_level)


@app.command(epilog="Example: stream-calib serve --config prod.toml --http 0.0.0.0:8080")
def serve(
    config: ConfigOption = DEFAULT_CONFIG,
    http: Annotated[str | None, typer.Option(help="host:port to answer on, in place of http.listen.")] = None,
    log_level: LogLevelOption = None,
) -> None:
    """Answer POST /v1/calibrate, by the current snapshots, until SIGTERM or Ctrl-C; the API is at /openapi.json.

    Only Redis is needed. With topics.live_blocks what is served is written there, for the monitor.
    """
    _run(["serve"], config, http, log_level)


def _run(roles: list[str], config: Path, http: str | None, log_level: LogLevel | None) -> None:
    with readable_errors():
        if http is not None:
            os.environ[HTTP_LISTEN_VARIABLE] = http
        loaded = load(config)
        set_up_logging(loaded.telemetry, ROLES, log_level.value if log_level else None)
        try:
            run_roles(roles, loaded)
        except StreamCalibError as error:
            # In the log's own form: what collects it expects a time and a level, or JSON.
            _LOG.error("%s", error)
            raise typer.Exit(1) from error


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
    from stream_calib.demo.figures import figures_table
    from stream_calib.demo.flights import load_flights
    from stream_calib.demo.report import render_report
    from stream_calib.transport.embedded_server import EmbeddedServer
    from workers.demo import LockStep, demo_config_file, refit_outcomes, role_processes
    from workers.demo_results import collect

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


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
