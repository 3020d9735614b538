"""The generations that a model key's state has: what each was made under, how large it is, how far it has come."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from stream_calib.config import Config
from stream_calib.config_identity import content_hash, semantic_content
from stream_calib.errors import StateUnavailableError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import RedisClient, replies_to
from stream_calib.redis_connection import answering
from stream_calib.windows.redis_names import names_of
from stream_calib.windows.registration import SEMANTICS, stored_content
from workers.deployment import state_of

CURSORS = ("first_pane", "closed", "matured", "decided")


class GenerationFacts(NamedTuple):
    """One generation."""

    key: ModelKey
    number: int
    live: bool
    generation: str | None
    """Hash of the semantic configuration that it was made under; None: nothing is there yet."""
    content: dict[str, Any] | None
    """What is hashed; None where it was made before that was kept."""
    ours: bool
    """It was made under the configuration at hand."""
    keys: int
    """Of the server."""
    bytes: int
    """That they use there."""
    snapshot: str | None
    pane_ms: int | None
    cursors: dict[str, int | None]
    """Panes of `pane_ms`."""


def generation_facts(client: RedisClient, config: Config, key: ModelKey) -> list[GenerationFacts]:
    """In order of their numbers; also those that are not on record, as of a `state drop` that was interrupted.

    Goes through all names of the server. Raises StateUnavailableError.
    """
    keys, sizes = _sizes(client, key)
    known = state_of(client, config, key).directory.look()
    numbers = sorted({*known.kept, *keys})
    return [_facts(client, config, key, n, n == known.live, keys[n], sizes[n]) for n in numbers]


def _facts(
    client: RedisClient, config: Config, key: ModelKey, number: int, live: bool, keys: int, size: int
) -> GenerationFacts:
    fields = state_of(client, config, key, number).store.read(("generation", SEMANTICS, "current", *CURSORS))
    stored = fields[SEMANTICS]
    content = None if stored is None else stored_content(stored)
    begun = fields["first_pane"] is not None
    return GenerationFacts(
        key,
        number,
        live,
        fields["generation"],
        content,
        fields["generation"] == content_hash(semantic_content(config)),
        keys,
        size,
        fields["current"] or None,
        None if content is None else int(content["pane_ms"]),
        {name: int(fields[name] or 0) if begun else None for name in CURSORS},
    )


def _sizes(client: RedisClient, key: ModelKey) -> tuple[Counter[int], Counter[int]]:
    """Generation -> keys, and bytes."""
    keys, sizes = Counter[int](), Counter[int]()
    for some in names_of(client, key):
        names = [(name.full, name.generation) for name in some if name.generation is not None]
        with answering(StateUnavailableError, f"measuring the state of {key}"):
            replies = replies_to(client, [(name, ("MEMORY USAGE", name)) for name, _ in names])
        for (_, number), reply in zip(names, replies, strict=True):
            keys[number] += 1
            sizes[number] += int(reply or 0)
    return keys, sizes
