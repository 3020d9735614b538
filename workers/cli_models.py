"""Which model key a command is about: the only one, or the one that is named."""

from __future__ import annotations

from typing import Annotated

import typer

from stream_calib.config import Config
from stream_calib.config_identity import configured_keys
from stream_calib.errors import ConfigurationError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import RedisClient
from workers.deployment import State, connect_state, open_registry, state_of

ModelOption = Annotated[
    str | None, typer.Option("--model", help="Name of the model, where the deployment has several.", show_default=False)
]
VersionOption = Annotated[
    str | None,
    typer.Option("--version", help="Version of the model, where there are several.", show_default=False),
]


def known_keys(client: RedisClient, config: Config) -> list[ModelKey]:
    """The keys of the configuration, then those that were found in records."""
    return list(dict.fromkeys([*configured_keys(config), *open_registry(client, config).known()]))


def open_selected(config: Config, model: str | None, version: str | None) -> State:
    """The parts of the one model key that fits the options.

    Raises ConfigurationError, with the keys that there are, where none or several fit; else as `connect_state`.
    """
    client = connect_state(config)
    return state_of(client, config, selected_key(known_keys(client, config), model, version))


def selected_keys(known: list[ModelKey], model: str | None, version: str | None) -> list[ModelKey]:
    """Those that fit. Raises ConfigurationError where some are asked for and none fits."""
    fitting = [key for key in known if model in (None, key.model) and version in (None, key.version)]
    if not fitting and (model, version) != (None, None):
        asked = "/".join(part or "(any)" for part in (model, version))
        raise ConfigurationError(f"no model key is {asked}; there are {', '.join(map(str, known)) or 'none yet'}")
    return fitting


def selected_key(known: list[ModelKey], model: str | None, version: str | None) -> ModelKey:
    """Raises ConfigurationError where none or several fit."""
    fitting = selected_keys(known, model, version)
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise ConfigurationError("there is no model key yet: models are named by the records, and none has been read")
    raise ConfigurationError(f"which one? There are {', '.join(map(str, fitting))}; say it with --model and --version")
