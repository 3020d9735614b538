"""Looking through a Redis-compatible server for what a model key has there.

What a state was made with (shards, panes) may not be what is configured now, so the server is asked for names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from stream_calib.errors import StateUnavailableError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import ClusterClient, RedisClient
from stream_calib.redis_connection import answering
from stream_calib.windows.generations import generation_of, key_part

_SCANNED_A_STEP = 1_000
NAMES_A_STEP = 200


class Name(NamedTuple):
    """A key of the server."""

    full: bytes
    shard: int | None
    """None: of the model key's own state."""
    generation: int | None
    """None: of none."""
    rest: bytes
    """Behind the tag and the generation's part."""


def names_of(client: RedisClient, key: ModelKey) -> Iterator[list[Name]]:
    """All of the model key's, some hundred at a time, in no order; one may come twice.

    Raises StateUnavailableError, and ConfigurationError where the user has no right to SCAN.
    """
    servers: list[Any] = [node for _, node in client.primaries()] if isinstance(client, ClusterClient) else [client]
    found: list[Name] = []
    for server in servers:
        # The names of models have nothing in them that is special in a pattern. A shard's tag has one part more.
        for pattern in (f"sc:{{{key}}}:*", f"sc:{{{key}/*}}:*"):
            cursor = 0
            while True:
                with answering(StateUnavailableError, f"looking for the state of {key}"):
                    cursor, names = server.scan(cursor, match=pattern, count=_SCANNED_A_STEP)
                found += [_parsed(name, key) for name in names]
                while len(found) >= NAMES_A_STEP:
                    yield found[:NAMES_A_STEP]
                    found = found[NAMES_A_STEP:]
                if not cursor:
                    break
    if found:
        yield found


def full_name(key: ModelKey, shard: int | None, generation: int, rest: bytes) -> bytes:
    """The inverse of what a Name says."""
    tag = str(key) if shard is None else f"{key}/{shard}"
    return b"sc:{%s}:%s%s" % (tag.encode(), key_part(generation).encode(), rest)


def _parsed(name: bytes, key: ModelKey) -> Name:
    tag, _, behind = name.partition(b"}:")
    shard = tag.removeprefix(b"sc:{%s" % str(key).encode())
    generation = generation_of(behind)
    rest = behind if generation is None else behind[len(key_part(generation)) :]
    return Name(name, int(shard[1:]) if shard else None, generation, rest)
