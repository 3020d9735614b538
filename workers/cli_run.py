"""`stream-calib run` and `stream-calib serve`: roles in this process."""

from __future__ import annotations

import logging
import os
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from stream_calib.errors import StreamCalibError
from workers.cli_common import DEFAULT_CONFIG, ConfigOption, load, readable_errors
from workers.logs import set_up_logging
from workers.run import ROLES, run_roles

_LOG = logging.getLogger(__name__)

HTTP_LISTEN_VARIABLE = "STREAM_CALIB_HTTP_LISTEN"


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


app = typer.Typer()


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
