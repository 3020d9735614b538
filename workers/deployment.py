"""From a configuration to connected parts. Each role makes its own: connections are not shared between threads."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from stream_calib.alerts.hooks.port import Hook
from stream_calib.config import Config
from stream_calib.config_alerts import AlertsSection
from stream_calib.config_identity import configured_keys, content_hash, semantic_content
from stream_calib.config_values import mask_url
from stream_calib.errors import ConfigurationError, GenerationMismatchError, StateUnavailableError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import RedisClient
from stream_calib.redis_connection import answering, connect
from stream_calib.snapshot.store import SnapshotStore
from stream_calib.transport.embedded import EmbeddedLog
from stream_calib.transport.kafka import KafkaLog
from stream_calib.transport.port import Log
from stream_calib.windows.generations import GenerationDirectory, directory_of, key_part
from stream_calib.windows.model_registry import ModelRegistry, deployment_scope
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.redis_shards import RedisShards
from stream_calib.windows.redis_state import RedisState
from stream_calib.windows.registration import FORMAT, SEMANTICS, check_format, check_generation
from workers.input_gaps import InputGaps
from workers.role import wall_clock_ms
from workers.status_board import StatusBoard


@dataclass(frozen=True, slots=True)
class State:
    """Connected parts over the state's server, for one generation of a model key."""

    client: RedisClient
    model_key: ModelKey
    directory: GenerationDirectory
    number: int
    """Of the generation."""
    semantics: dict[str, Any]
    """Semantic content of the configuration; what is stored may have been made under another one."""
    generation: str
    """Its hash."""
    store: RedisState
    shards: RedisShards
    snapshots: SnapshotStore
    board: StatusBoard

    def check(self) -> None:
        """Raises StateFormatError where the state is of another format, GenerationMismatchError where it was made under
        another configuration, or another generation has become live since this was opened."""
        stored = self.store.read(("generation", SEMANTICS, FORMAT))
        check_format(stored[FORMAT])
        check_generation(stored[SEMANTICS], stored["generation"], self.semantics)
        live = self.directory.look().live
        if live != self.number:
            raise GenerationMismatchError(
                f"generation {live} of {self.model_key} is live now, this process works on {self.number}: start it"
                " again with the configuration that generation was made under"
            )

    def close(self) -> None:
        """Closes the connection, which the parts of other model keys may share."""
        self.client.close()


def open_log(config: Config) -> Log:
    """Raises TransportError where the log does not answer, ConfigurationError where it cannot be used."""
    if config.log.kind == "kafka":
        return KafkaLog(config.log)
    if config.log.kind == "librdkafka":
        return _librdkafka_log(config)
    return EmbeddedLog(config.log.url, session_timeout_ms=config.log.session_timeout_ms)


def log_address(config: Config) -> str:
    """Without a password."""
    return mask_url(config.log.url) if config.log.kind == "embedded" else config.log.bootstrap_servers


def connect_state(config: Config) -> RedisClient:
    """Raises StateUnavailableError where the server does not answer, ConfigurationError where it cannot be used."""
    with answering(StateUnavailableError, f"connecting to the state at {mask_url(config.redis.url)}"):
        return connect(config.redis)


def state_of(client: RedisClient, config: Config, key: ModelKey, number: int | None = None) -> State:
    """The parts of one model key over a connection: of the generation of that number, else of the live one.

    Raises StateUnavailableError when the store is away.
    """
    directory = directory_of(client, key)
    number = directory.look().live if number is None else number
    part = key_part(number)
    store = RedisState(client, key, part)
    shards = RedisShards(client, key, config.windows.shards, PaneSettings.of(config), part)
    semantics = semantic_content(config)
    generation = content_hash(semantics)
    snapshots = SnapshotStore(store, key, generation, config.windows.pane_ms, wall_clock_ms)
    board = StatusBoard(client, key)
    return State(client, key, directory, number, semantics, generation, store, shards, snapshots, board)


def _librdkafka_log(config: Config) -> Log:
    with needs_confluent_kafka():
        from stream_calib.transport.librdkafka import LibrdkafkaLog
    return LibrdkafkaLog(config.log)


@contextmanager
def needs_confluent_kafka() -> Iterator[None]:
    """Around an import: raises ConfigurationError where it fails because confluent-kafka is not there, or not whole."""
    try:
        yield
    except ImportError as error:
        if not (error.name or "").startswith("confluent_kafka"):
            raise
        raise ConfigurationError(
            f'log.kind = "librdkafka" needs confluent-kafka ({error}): `pip install stream-calib[fast]`, or set'
            ' log.kind = "kafka"'
        ) from error


def open_state(config: Config) -> State:
    """`state_of` the only configured model key. Raises as `connect_state`, and ConfigurationError where there are
    several, or none."""
    keys = configured_keys(config)
    if len(keys) != 1:
        raise ConfigurationError(f"one model key is needed here, the configuration names {len(keys)}: say which one")
    return state_of(connect_state(config), config, keys[0])


def open_registry(client: RedisClient, config: Config) -> ModelRegistry:
    """The deployment's model keys: those of the configuration, and those that were found in records."""
    return ModelRegistry(open_deployment_store(client, config), config.model.max_keys)


def open_deployment_store(client: RedisClient, config: Config) -> RedisState:
    """What belongs to the deployment and to none of its model keys: the registry, gaps in the inputs."""
    return RedisState(client, deployment_scope(config.log.group_prefix))


def open_board(client: RedisClient, config: Config) -> StatusBoard:
    """The board of the deployment itself, beside those of its model keys."""
    return StatusBoard(client, deployment_scope(config.log.group_prefix))


def open_gaps(client: RedisClient, config: Config) -> InputGaps:
    """The gaps in the deployment's inputs."""
    scope = deployment_scope(config.log.group_prefix)
    return InputGaps(open_deployment_store(client, config), scope, config.windows.pane_ms)


def member_name() -> str:
    """Names this process in groups, leases and statuses."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:6]}"


def hooks_of(alerts: AlertsSection) -> list[Hook]:
    """The hooks of the configuration. Raises ConfigurationError, see open_hooks."""
    if not alerts.hooks:
        return []
    from stream_calib.alerts.hooks.opening import open_hooks  # what it imports is of no use to those without hooks

    return open_hooks(alerts)
