"""`stream-calib <arguments>`, as a test gives it: with a wide terminal."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Mapping
from unittest import mock

from typer.testing import CliRunner

from tests.logging_state import logging_as_before
from workers.cli import app
from workers.cli_common import console

_COLUMNS = 200


def command_line(*arguments: str, environ: Mapping[str, str] = os.environ) -> subprocess.CompletedProcess[str]:
    """Runs the command to its end, in this process: starting one takes longer than most commands do."""
    gone = {name: None for name in os.environ if name not in environ}
    with logging_as_before(), mock.patch.object(console, "_width", _COLUMNS):
        done = CliRunner().invoke(app, arguments, env={**gone, **environ, "COLUMNS": str(_COLUMNS)})
    error = done.exception
    unexpected = "" if error is None or isinstance(error, SystemExit) else "".join(traceback.format_exception(error))
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr + unexpected)


def command_process(
    *arguments: str, environ: Mapping[str, str] = os.environ, within_s: float = 60
) -> subprocess.CompletedProcess[str]:
    """Runs the command to its end, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "workers.cli", *arguments],
        env={**environ, "COLUMNS": str(_COLUMNS)},
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
