"""Generations of a model key's state: each made under one semantic configuration, side by side, one of them live.

The first one's keys carry nothing beside the tag, so state from before there were generations is generation 0; those
of generation 2 begin with ``2:`` behind the tag, so all of a generation's keys of a shard stay in one slot. What is
live is a field of a small store of its own under the model key's tag, so moving the pointer is one compare-and-set.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from stream_calib.errors import StateError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import RedisClient
from stream_calib.windows.redis_state import RedisState
from stream_calib.windows.state_store import Commit, StateStore

DIRECTORY = "g:"
"""What the keys carry that say which generations there are."""
_FIELD = "generations"
_ATTEMPTS = 20
_OF_LATER = re.compile(rb"([0-9]+):")


class Generations(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a model key has. The default is what holds where nothing is on record."""

    live: int = 0
    newest: int = 0
    """The highest number ever given."""
    kept: tuple[int, ...] = (0,)
    """In order; the live one is among them."""


class GenerationDirectory:
    """Safe to use from several processes. Raises StateUnavailableError when the store is away."""

    def __init__(self, store: StateStore) -> None:
        """`store`: see `directory_store`."""
        self._store = store

    def look(self) -> Generations:
        """Raises StateError where what is stored cannot be read."""
        return _decoded(self._store.read((_FIELD,))[_FIELD])

    def begin(self) -> int:
        """The number of a new generation, which is on record from now on and not live."""
        made = self._change(
            lambda found: Generations(found.live, found.newest + 1, (*found.kept, found.newest + 1)),
        )
        return made.newest

    def switch(self, live: int, to: int) -> None:
        """Makes `to` live. Raises StateError where not `live` is the live one any more, or `to` is not on record."""

        def switched(found: Generations) -> Generations:
            if found.live != live or to not in found.kept:
                raise StateError(
                    f"generation {found.live} is live and there are {_listed(found.kept)}, so {to} cannot take the"
                    f" place of {live}: somebody was faster; look at `stream-calib state list`"
                )
            return Generations(to, found.newest, found.kept)

        self._change(switched)

    def forget(self, number: int) -> None:
        """Takes a generation off the record. Raises StateError where it is live or not there."""

        def without(found: Generations) -> Generations:
            if number == found.live or number not in found.kept:
                why = "is live" if number == found.live else f"is not there; there are {_listed(found.kept)}"
                raise StateError(f"generation {number} {why}; nothing was dropped")
            return Generations(found.live, found.newest, tuple(n for n in found.kept if n != number))

        self._change(without)

    def _change(self, change: Callable[[Generations], Generations]) -> Generations:
        for _ in range(_ATTEMPTS):
            raw = self._store.read((_FIELD,))[_FIELD]
            wanted = change(_decoded(raw))
            encoded = msgspec.json.encode(wanted, order="deterministic").decode()
            if self._store.commit(Commit(expect={_FIELD: raw}, fields={_FIELD: encoded})):
                return wanted
        raise StateError(f"the generations could not be changed in {_ATTEMPTS} attempts; is the store being wiped?")


def directory_store(client: RedisClient, key: ModelKey) -> RedisState:
    """Holds which generations a model key has."""
    return RedisState(client, key, DIRECTORY)


def directory_of(client: RedisClient, key: ModelKey) -> GenerationDirectory:
    """Of a model key in a Redis-compatible server."""
    return GenerationDirectory(directory_store(client, key))


def key_part(number: int) -> str:
    """What the keys of a generation carry behind their tag."""
    return f"{number}:" if number else ""


def generation_of(rest: bytes) -> int | None:
    """The generation that a key is of, by what is behind its tag; None: of none (the directory, statuses)."""
    if rest.startswith(DIRECTORY.encode()) or rest == b"status":
        return None
    later = _OF_LATER.match(rest)
    return int(later[1]) if later else 0


class LiveStates:
    """The live generation's state of each model key, over one connection; the same object as long as it is live."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._states: dict[ModelKey, tuple[int, RedisState]] = {}

    def __call__(self, key: ModelKey) -> StateStore:
        """Raises StateUnavailableError when the store is away."""
        live = directory_of(self._client, key).look().live
        known = self._states.get(key)
        if known is None or known[0] != live:
            known = self._states[key] = live, RedisState(self._client, key, key_part(live))
        return known[1]


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


def _decoded(raw: str | None) -> Generations:
    if raw is None:
        return Generations()
    try:
        return msgspec.json.decode(raw, type=Generations)
    except msgspec.MsgspecError as error:
        raise StateError(f"the list of generations cannot be read: {error}; put a backup back") from error
