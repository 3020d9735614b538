"""Appending to the embedded log: one script call for a batch of records and committed positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import redis

from stream_calib.errors import FencedError, TransportError
from stream_calib.redis_connection import LuaScript
from stream_calib.transport.embedded_layout import (
    WRITER_LIFE_MS,
    group_key,
    pack,
    stream_key,
    topic_key,
    writer_key,
)
from stream_calib.transport.partitioning import Partitioner
from stream_calib.transport.port import Outgoing, TopicPartition

_PACKAGE = "stream_calib.transport"

APPEND = LuaScript(_PACKAGE, "embedded_append.lua", error_class=TransportError)

_METADATA_ATTEMPTS = 5


class TopicState(NamedTuple):
    id: str
    partitions: int


class Move(NamedTuple):
    """One committed position to be moved."""

    partition: TopicPartition
    token: str
    expected: int | None
    """The committed position that must be there."""
    new: int


class Moves(NamedTuple):
    """The positions that one member commits with a batch."""

    group: str
    member: str
    beat: int
    """The member's last heartbeat that the server must remember; else it has lost writes since."""
    moves: Sequence[Move]


NO_MOVES = Moves("", "", 0, ())


class Writer:
    """Appends under one identity, so that an append repeated after a lost connection is done once. Not thread-safe."""

    def __init__(self, client: redis.Redis, instance: str, describe: Callable[[str], TopicState]) -> None:
        """`instance` is unique to this writer; `describe` asks the server for a topic, or raises TransportError."""
        self._client = client
        self._instance = instance
        self._describe = describe
        self._topics: dict[str, TopicState] = {}
        self._partitioner = Partitioner()
        self._sequence = 0

    def append(self, outputs: Sequence[Outgoing], moves: Moves = NO_MOVES) -> None:
        """All records and all moves, or nothing.

        Raises FencedError when a lease is no longer the member's, TransportError when a topic does not exist, the
        committed positions are not the expected ones, or it is not known whether it was done.
        """
        for _ in range(_METADATA_ATTEMPTS):
            self._sequence += 1
            keys, plan, entries = self._plan(outputs, moves)
            reply = APPEND(self._client, keys, [msgspec.msgpack.encode(plan), *entries])
            if reply != b"topics":
                break
            self._topics.clear()  # a topic has grown or was created anew: partitions must be chosen again
        if reply == b"ok":
            return
        what = f"{len(outputs)} records and the positions {_listed(moves)}"
        if reply == b"fenced":
            raise FencedError(
                f"{what} were not written: another member of group {moves.group} has taken over from {moves.member};"
                " drop the batch and poll again"
            )
        if reply == b"moved":
            raise TransportError(
                f"{what} were not written: the committed positions of group {moves.group} are not those this member"
                " worked from (an earlier commit was done or lost); go back to the committed positions"
            )
        if reply == b"damaged":
            raise TransportError(f"{what} were not written: a stream holds entries that its topic does not know of")
        raise TransportError(f"{what} were not written: the log answered {reply!r}")

    def _plan(self, outputs: Sequence[Outgoing], moves: Moves) -> tuple[list[str], dict[str, Any], list[bytes]]:
        key_numbers: dict[str, int] = {}

        def number(key: str) -> int:
            return key_numbers.setdefault(key, len(key_numbers) + 1)  # Lua counts from 1

        number(writer_key(self._instance))
        packed: dict[TopicPartition, list[bytes]] = {}
        for record in outputs:
            state = self._topics.get(record.topic)
            if state is None or (record.partition is not None and record.partition >= state.partitions):
                state = self._topics[record.topic] = self._describe(record.topic)  # first use, or it may have grown
            partition = TopicPartition(record.topic, self._partitioner.choose(record, state.partitions))
            if (entries := packed.get(partition)) is None:
                entries = packed[partition] = []
            entries.append(pack(record))
        topics = {partition.topic for partition in packed}
        by_topic: dict[str, list[list[Any]]] = {}
        for move in moves.moves:
            expected = "" if move.expected is None else str(move.expected)
            by_topic.setdefault(move.partition.topic, []).append(
                [move.partition.partition, move.token, expected, str(move.new)]
            )
        plan = {
            "sequence": self._sequence,
            "life": WRITER_LIFE_MS,
            "topics": [[number(topic_key(t)), self._topics[t].id, self._topics[t].partitions] for t in sorted(topics)],
            "commits": [
                [number(group_key(moves.group, topic)), moves.member, moves.beat, positions]
                for topic, positions in by_topic.items()
            ],
            "streams": [
                [number(stream_key(p)), number(topic_key(p.topic)), p.partition, len(entries)]
                for p, entries in packed.items()
            ],
        }
        return list(key_numbers), plan, [entry for entries in packed.values() for entry in entries]


def _listed(moves: Moves) -> str:
    return "{" + ", ".join(f"{move.partition}: {move.new}" for move in moves.moves) + "}"
