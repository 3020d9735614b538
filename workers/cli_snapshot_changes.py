"""`stream-calib snapshot rollback|pin|unpin`: each is on record with who and why."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from stream_calib.errors import ConfigurationError
from workers.cli_common import DEFAULT_CONFIG, ConfigOption, console, load, readable_errors
from workers.cli_models import ModelOption, VersionOption, open_selected

app = typer.Typer()


def stated_reason(reason: str) -> str:
    """Of an option that must say why: the reason. Ends the command where it says nothing."""
    with readable_errors():
        if not reason.strip():
            raise ConfigurationError("nothing is said; say why with --reason, for whoever comes next")
    return reason


ReasonOption = Annotated[str, typer.Option("--reason", callback=stated_reason, help="Why; kept in the decision log.")]
ActorOption = Annotated[
    str, typer.Option("--actor", help="Who; kept in the decision log.", show_default="the user's name")
]


@app.command(epilog='Example: stream-calib snapshot rollback 000011-0123456789ab --reason "declines went up"')
def rollback(
    snapshot: Annotated[str, typer.Argument(help="A version that was published before.")],
    reason: ReasonOption,
    actor: ActorOption = "",
    model: ModelOption = None,
    version: VersionOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Serve an earlier snapshot again, from the next pane that is decided on; calibrate takes it up at once, or at
    its next poll. The next refit may replace it: `snapshot pin` keeps it."""
    with readable_errors():
        state = open_selected(load(config), model, version)
        state.snapshots.rollback(snapshot, actor or user_name(), reason)
    console.print(f"{state.model_key} now serves {snapshot}")


@app.command(epilog='Example: stream-calib snapshot pin current --reason "audit until Friday"')
def pin(
    snapshot: Annotated[str, typer.Argument(help="A version from `snapshot list`, or `current`.")],
    reason: ReasonOption,
    actor: ActorOption = "",
    model: ModelOption = None,
    version: VersionOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Serve this snapshot until `snapshot unpin`. Another one than the current is rolled back to.

    Drift is watched and refits are asked for, made and judged as before, so that their reports show what was missed
    (`snapshot refits`), but none is published.
    """
    with readable_errors():
        state = open_selected(load(config), model, version)
        pinned = state.snapshots.pin(None if snapshot == "current" else snapshot, actor or user_name(), reason)
    console.print(f"{state.model_key} serves {pinned} until `stream-calib snapshot unpin`")


@app.command(epilog='Example: stream-calib snapshot unpin --reason "audit is over"')
def unpin(
    reason: ReasonOption,
    actor: ActorOption = "",
    model: ModelOption = None,
    version: VersionOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Let refits publish again. To have one at once: `stream-calib refit`."""
    with readable_errors():
        state = open_selected(load(config), model, version)
        pinned = state.snapshots.unpin(actor or user_name(), reason)
    console.print(f"{state.model_key}: {pinned} is no longer pinned; the next refit that passes its gate replaces it")


def user_name() -> str:
    """The user of this process. Raises ConfigurationError where it has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:  # in a container the user may be a number without a name
        raise ConfigurationError("the user of this process has no name; say who asks with --actor NAME") from error
