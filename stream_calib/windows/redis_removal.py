"""Deleting all that a model key has in a Redis-compatible server, in steps that hold nobody up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from stream_calib.errors import StateUnavailableError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import ClusterClient, RedisClient, pipelined
from stream_calib.redis_connection import answering

_KEYS_A_STEP = 200
_SCANNED_A_STEP = 1_000


def delete_state(client: RedisClient, key: ModelKey, before_step: Callable[[], None]) -> int:
    """Deletes the key's state and shards; how many keys of the server that were.

    `before_step`: called before each step; what it raises ends the work, which can be taken up again. The server is
    looked through for names, because what a state was made with (shards, panes) may not be what is configured now.
    Raises StateUnavailableError, and ConfigurationError where the user has no right to SCAN and DEL.
    """
    deleted = 0
    for names in _steps(client, key):
        before_step()
        with answering(StateUnavailableError, f"deleting the state of {key}"):
            for reply in pipelined(client, [(name, ("DEL", name)) for name in names]):
                if isinstance(reply, Exception):
                    raise reply
                deleted += int(reply)
    return deleted


def _steps(client: RedisClient, key: ModelKey) -> Iterator[list[bytes]]:
    servers: list[Any] = [node for _, node in client.primaries()] if isinstance(client, ClusterClient) else [client]
    found: list[bytes] = []
    for server in servers:
        # The names of models have nothing in them that is special in a pattern. A shard's tag has one part more.
        for pattern in (f"sc:{{{key}}}:*", f"sc:{{{key}/*}}:*"):
            cursor = 0
            while True:
                with answering(StateUnavailableError, f"looking for the state of {key}"):
                    cursor, names = server.scan(cursor, match=pattern, count=_SCANNED_A_STEP)
                found += names
                while len(found) >= _KEYS_A_STEP:
                    yield found[:_KEYS_A_STEP]
                    found = found[_KEYS_A_STEP:]
                if not cursor:
                    break
    if found:
        yield found
