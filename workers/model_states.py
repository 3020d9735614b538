"""The states of a deployment's model keys over one connection, for the roles that work on each of them in turn."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from stream_calib.config import Config
from stream_calib.config_identity import configured_keys
from stream_calib.errors import (
    GenerationMismatchError,
    SnapshotError,
    StateError,
    StateFormatError,
    StateUnavailableError,
)
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import RedisClient
from workers.deployment import State, open_registry, state_of

_LOG = logging.getLogger(__name__)

_LOOK_EVERY_MS = 1_000
_TRY_AGAIN_AFTER_MS = 60_000

Work = TypeVar("Work")


class ModelStates:
    """Those of the configuration, and those that are registered; new and retired ones are seen within a second."""

    def __init__(self, client: RedisClient, config: Config, clock_ms: Callable[[], int]) -> None:
        """`clock_ms`: wall time."""
        self._client, self._config, self._clock_ms = client, config, clock_ms
        self._registry = open_registry(client, config)
        self._states: dict[ModelKey, State] = {}
        self._left_out: dict[ModelKey, str] = {}
        self._looked_at: int | None = None

    def all(self) -> list[State]:
        """In order of registration. Raises StateUnavailableError when the store is away, GenerationMismatchError where
        the live state of a constant of the configuration was made under another one."""
        now = self._clock_ms()
        if self._looked_at is None or now - self._looked_at >= _LOOK_EVERY_MS:
            constants, registered = configured_keys(self._config), self._registry.look()
            for key in [key for key in self._states if key not in constants and registered.gone(key)]:
                del self._states[key]
            for key in (*constants, *registered.known):
                self._look(key, constant=key in constants)
            self._looked_at = now
        return list(self._states.values())

    def _look(self, key: ModelKey, *, constant: bool) -> None:
        """Takes the key in where its live state is of this configuration, and leaves it out where it is not."""
        state = self._states.get(key) or state_of(self._client, self._config, key)
        try:
            state.check()
        except (GenerationMismatchError, StateFormatError) as error:
            if constant:
                raise
            self._states.pop(key, None)
            if self._left_out.get(key) != (said := str(error)):
                _LOG.error("%s is left alone, other models go on: %s", key, error)
            self._left_out[key] = said
        else:
            self._states[key] = state
            self._left_out.pop(key, None)


class EachModel(Generic[Work]):
    """Work on one model key after the other. What is wrong with the state of one is no reason to stop for the others:
    it is left alone for a minute, and only where no other is left its error ends the role."""

    def __init__(self, role: str, clock_ms: Callable[[], int]) -> None:
        self._role, self._clock_ms = role, clock_ms
        self._left_until: dict[ModelKey, int] = {}

    def do(self, works: Iterable[tuple[ModelKey, Work]], step: Callable[[Work], bool]) -> bool:
        """Whether any step did something. Raises StateUnavailableError and TransportError, which concern all."""
        now = self._clock_ms()
        worked, error, well = False, None, False
        for key, work in works:
            if self._left_until.get(key, 0) > now:
                continue
            try:
                worked |= step(work)
                well = True
            except StateUnavailableError:
                raise
            except (StateError, SnapshotError) as found:
                error = found
                self._left_until[key] = now + _TRY_AGAIN_AFTER_MS
                _LOG.error("%s leaves %s alone for a minute: %s", self._role, key, found)
        if error is not None and not well:
            raise error
        return worked
