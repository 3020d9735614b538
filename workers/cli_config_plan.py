"""`stream-calib config plan`: what a changed configuration needs before the roles can be started with it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from stream_calib.config import Config
from stream_calib.config_identity import content_hash, semantic_content
from stream_calib.config_plan import Change, Kind, needed, plan, plan_of_content
from stream_calib.errors import ConfigurationError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import RedisClient
from stream_calib.windows.registration import SEMANTICS, stored_content
from workers.cli_common import JsonOption, console, load, print_json, readable_errors
from workers.cli_models import known_keys
from workers.deployment import connect_state, state_of

NEEDS_STATE = 3
"""Exit code where the state must be made anew; 1 is an error, 2 a command that was not understood."""

_SUMMARY = {
    Kind.HOT: "no rebuild: start the roles again",
    Kind.FORWARD: "no rebuild: start the roles again; what is marked forward-only holds from then on",
    Kind.REBUILD: "the state must be rebuilt first: `stream-calib state rebuild --config {new}`, which names the"
    " generation, then `stream-calib state switch GENERATION --config {new}`",
    Kind.FRESH: "this cannot be rebuilt from the log: give the model another version, or leave the setting as it was",
}


def plan_change(
    new: Annotated[Path, typer.Argument(help="The changed file.")],
    against: Annotated[
        Path | None, typer.Option(help="The file before the change; without it the live state.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say of each change whether it is hot, forward-only, or needs the state to be rebuilt.

    With --against everything that differs between two files; without it what the live state of each model key was made
    under, which is all that it knows of. Exit code 3: roles with this file would refuse to start, because the state
    must be made anew first.
    """
    with readable_errors():
        wanted = load(new)
        found = {"": plan(load(against), wanted)} if against is not None else _against_state(wanted)
    changes = [change for some in found.values() for change in some]
    need = needed(changes)
    if as_json:
        print_json(
            {
                "needs": need.value,
                "changes": [
                    {"model": model or None, **_plain(change)} for model, some in found.items() for change in some
                ],
            }
        )
    elif changes:
        _print(found)
        console.print(_SUMMARY[need].format(new=new))
    else:
        console.print("nothing differs" if against is not None else "nothing that the live state knows of differs")
    if need in (Kind.REBUILD, Kind.FRESH):
        raise typer.Exit(NEEDS_STATE)


def _against_state(config: Config) -> dict[str, list[Change]]:
    """Model key -> what differs from what its live state was made under."""
    with closing(connect_state(config)) as client:
        return {str(key): _of_key(client, config, key) for key in known_keys(client, config)}


def _of_key(client: RedisClient, config: Config, key: ModelKey) -> list[Change]:
    fields = state_of(client, config, key).store.read(("generation", SEMANTICS))
    wanted = semantic_content(config)
    if fields["generation"] in (None, content_hash(wanted)):
        return []
    if (stored := fields[SEMANTICS]) is None:
        raise ConfigurationError(
            f"the state of {key} was made under other settings ({fields['generation']}) before they were kept with it:"
            " name the file that it was made under with --against"
        )
    return plan_of_content(stored_content(stored), config)


def _print(found: dict[str, list[Change]]) -> None:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    columns = ("setting", "before", "after", "needs", "")
    for column in columns if list(found) == [""] else ("model", *columns):
        table.add_column(column, overflow="fold")
    for model, changes in found.items():
        for change in changes:
            cells = (change.setting, _cell(change.before), _cell(change.after), change.kind.value, change.meaning)
            table.add_row(*((model,) if model else ()), *cells)
    console.print(table)


def _cell(value: Any) -> str:
    return "(none)" if value is None else msgspec.json.encode(value).decode()


def _plain(change: Change) -> dict[str, Any]:
    return {**change._asdict(), "kind": change.kind.value}
