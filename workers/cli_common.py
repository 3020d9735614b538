"""What the commands share: the configuration option, errors as one readable line, JSON output."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from stream_calib.config import Config
from stream_calib.config_file import load_config
from stream_calib.errors import StreamCalibError
from stream_calib.transport.librdkafka_settings import LOGGER as LIBRDKAFKA_LOGGER

CONFIG_VARIABLE = "STREAM_CALIB_CONFIG"

ConfigOption = Annotated[
    Path,
    typer.Option("--config", "-c", envvar=CONFIG_VARIABLE, help="The deployment's TOML file.", show_default=True),
]
DEFAULT_CONFIG = Path("stream-calib.toml")
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

_OURS = ("stream_calib", "workers")

console = Console(markup=False, emoji=False)
"""What is printed holds values of the users' records and reasons that they gave: brackets in them are no markup."""


def plain_logging() -> None:
    """Our own warnings as one readable line; what client libraries log says nothing that our errors do not say."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("warning: %(message)s"))
    handler.addFilter(lambda record: record.name.startswith(_OURS) and record.name != LIBRDKAFKA_LOGGER.name)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)


@contextmanager
def readable_errors() -> Iterator[None]:
    """Ends the command with the error's message, and code 1, instead of a traceback."""
    try:
        yield
    except StreamCalibError as error:
        Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from error


def load(path: Path) -> Config:
    """The configuration. Raises ConfigurationError."""
    return load_config(path, os.environ)


def print_json(value: Any) -> None:
    json.dump(value, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")
