"""`stream-calib`: the command line. A command's module is imported when it is asked for: all of them take a second."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from workers.cli_common import plain_logging

_COMMANDS = {
    "demo": "cli_demo",
    "run": "cli_run",
    "serve": "cli_run",
    "refit": "cli_refit_request",
    "status": "cli_status",
    "doctor": "cli_doctor",
    "replay": "cli_replay",
    "backtest": "cli_backtest",
    "try": "cli_try",
}
"""Name -> module whose `app` has it."""
_GROUPS: dict[str, Sequence[str]] = {
    "config": ["cli_config"],
    "topics": ["cli_topics"],
    "snapshot": [
        "cli_snapshots",
        "cli_snapshot_changes",
        "cli_snapshot_held",
        "cli_snapshot_shadow",
        "cli_snapshot_at",
        "cli_refits",
    ],
    "alerts": ["cli_alerts"],
    "models": ["cli_retirement"],
    "state": ["cli_state"],
    "fusion": ["cli_fusion"],
    "labels": ["cli_labels"],
}
"""Name -> modules; the `app` of the first is the group, and has the commands of the others."""


class _Commands(TyperGroup):
    """The commands of the two tables."""

    # Any, because the classes of click are of click in some versions of typer, and its own in others.
    def list_commands(self, ctx: Any) -> list[str]:
        return [*_COMMANDS, *_GROUPS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _command(cmd_name) if cmd_name in self.list_commands(ctx) else None


@cache
def _command(name: str) -> Any:
    one = typer.Typer(add_completion=False)
    if name in _COMMANDS:
        one.add_typer(_app(_COMMANDS[name]))
    else:
        group, *others = map(_app, _GROUPS[name])
        for other in others:
            group.add_typer(other)
        one.add_typer(group, name=name)
    return get_group(one).commands[name]


def _app(module: str) -> typer.Typer:
    found = import_module(f"workers.{module}").app
    assert isinstance(found, typer.Typer)
    return found


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Streaming calibration: scores become probabilities that are true overall and within groups.",
    epilog="Start with `stream-calib demo`: ten months of real flights in two minutes, nothing else needed.",
)


@app.callback()
def _before_every_command() -> None:
    plain_logging()
    if isinstance(sys.stdout, TextIOWrapper):
        # A file's name may hold bytes that are no text; Python writes them so to stderr only.
        sys.stdout.reconfigure(errors="backslashreplace")


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
