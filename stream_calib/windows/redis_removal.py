"""Deleting what a model key has in a Redis-compatible server, in steps that hold nobody up."""

from __future__ import annotations

from collections.abc import Callable

from stream_calib.errors import StateUnavailableError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import RedisClient, replies_to
from stream_calib.redis_connection import answering
from stream_calib.windows.redis_names import Name, names_of


def delete_state(client: RedisClient, key: ModelKey, before_step: Callable[[], None]) -> int:
    """Deletes the key's state and shards, of all generations; how many keys of the server that were.

    `before_step`: called before each step; what it raises ends the work, which can be taken up again. Raises
    StateUnavailableError, and ConfigurationError where the user has no right to SCAN and DEL.
    """
    return _delete(client, key, lambda name: True, before_step)


def delete_generation(client: RedisClient, key: ModelKey, number: int, before_step: Callable[[], None]) -> int:
    """Deletes one generation of the key; see `delete_state`."""
    return _delete(client, key, lambda name: name.generation == number, before_step)


def _delete(client: RedisClient, key: ModelKey, wanted: Callable[[Name], bool], before_step: Callable[[], None]) -> int:
    deleted = 0
    for found in names_of(client, key):
        before_step()
        with answering(StateUnavailableError, f"deleting the state of {key}"):
            replies = replies_to(client, [(name.full, ("DEL", name.full)) for name in found if wanted(name)])
        deleted += sum(map(int, replies))
    return deleted
