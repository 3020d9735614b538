"""The log in a Redis-compatible server: for the demo and a single machine. Weaker than Kafka, and says so.

What is weaker: one server; with `appendfsync everysec` a power loss (not a crash of the server alone) may take the last
second. A member notices that and begins again at the committed positions; a producer is not told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any
from uuid import uuid4

from stream_calib.config_values import mask_url
from stream_calib.errors import TransportError, UnknownTopicError
from stream_calib.redis_connection import LuaScript, answering, connect
from stream_calib.transport.embedded_append import TopicState, Writer
from stream_calib.transport.embedded_consumer import EmbeddedConsumer
from stream_calib.transport.embedded_layout import (
    checked_name,
    entry_id,
    group_key,
    groups_key,
    members_key,
    stream_key,
    topic_key,
    unpack,
)
from stream_calib.transport.port import Log, Outgoing, Record, StartAt, TopicPartition

_TOPIC = LuaScript("stream_calib.transport", "embedded_topic.lua", error_class=TransportError)

_PRODUCE_RECORDS = 5_000
"""Without a transaction a long list is written in parts, so that one script does not hold up everybody else."""
_TRIM_RECORDS = 20_000

DEFAULT_SESSION_TIMEOUT_MS = 10_000


def _as_is(reply: Any, **_: Any) -> Any:
    return reply


class EmbeddedLog(Log):
    """One process's connection. Thread-safe; its consumers are not."""

    def __init__(self, url: str, *, session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS) -> None:
        """Raises ConfigurationError where the server cannot be used, TransportError where it does not answer."""
        with answering(TransportError, f"connecting to the embedded log at {mask_url(url)}"):
            self._client = connect(url)
        # redis-py would make a dict of each entry.
        self._client.set_response_callback("XRANGE", _as_is)
        self._session_timeout_ms = session_timeout_ms
        self._writer = Writer(self._client, uuid4().hex, self._describe)
        self._writing = Lock()

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        if partitions < 1:
            raise TransportError(f"topic {topic} with {partitions} partitions: at least 1 is needed")
        found = _TOPIC(self._client, [topic_key(checked_name("topic", topic))], [str(uuid4()), partitions, 0])
        if found != partitions:
            raise TransportError(f"topic {topic} exists with {found} partitions, not {partitions}")

    def grow_topic(self, topic: str, partitions: int) -> None:
        """Adds partitions up to this number. Keys move to other partitions, as in Kafka.

        Raises TransportError where the topic does not exist or has more.
        """
        found = _TOPIC(self._client, [topic_key(topic)], ["", partitions, 1])
        if found != partitions:
            raise TransportError(f"topic {topic} cannot grow to {partitions} partitions: it has {found} (0: no topic)")

    def delete_topic(self, topic: str) -> None:
        """Deletes the topic and its records, but no group's positions: their members find a recreated topic out.

        Raises TransportError where there is no such topic.
        """
        streams = [stream_key(TopicPartition(topic, p)) for p in range(self.partitions(topic))]
        with answering(TransportError, f"deleting topic {topic}"):
            self._client.delete(topic_key(topic), *streams)

    def delete_group(self, group: str, topic: str) -> None:
        """Forgets the group's positions on the topic. Only for a group without live members."""
        with answering(TransportError, f"deleting group {group} on {topic}"):
            self._client.delete(group_key(group, topic), members_key(group, topic))
            self._client.srem(groups_key(topic), group)

    def trim(self, partition: TopicPartition, before: int) -> int:
        """Drops records with offset < `before`, but none that a group has not committed. Returns the bound used."""
        with answering(TransportError, f"trimming {partition}"):
            groups: set[Any] = self._client.smembers(groups_key(partition.topic))
            for group in groups:
                key = group_key(group.decode(), partition.topic)
                before = min(before, int(self._client.hget(key, f"position:{partition.partition}") or 0))
            # In parts, so that one command does not hold up everybody else.
            while (first := self.read(partition, 0, 1)) and first[0].offset < before:
                upto = min(before, first[0].offset + _TRIM_RECORDS)
                self._client.xtrim(stream_key(partition), minid=entry_id(upto), approximate=False)
        return before

    def partitions(self, topic: str) -> int:
        return self._describe(topic).partitions

    def topic_id(self, topic: str) -> str:
        return self._describe(topic).id

    def end_offset(self, partition: TopicPartition) -> int:
        with answering(TransportError, f"reading the end of {partition}"):
            end = self._client.hget(topic_key(partition.topic), f"end:{partition.partition}")
        return int(end or 0)

    def offset_at(self, partition: TopicPartition, time_ms: int) -> int:
        # Append times do not decrease in one partition: one server's clock gives them.
        low, high = 0, self.end_offset(partition)
        while low < high:
            middle = (low + high) // 2
            found = self.read(partition, middle, 1)
            if found and found[0].append_time_ms < time_ms:
                low = found[0].offset + 1
            else:
                high = middle
        found = self.read(partition, low, 1)
        return found[0].offset if found else self.end_offset(partition)

    def group_positions(self, group: str, topic: str) -> Mapping[int, int]:
        partitions = self.partitions(topic)
        with answering(TransportError, f"reading the positions of group {group} on {topic}"):
            found: list[Any] = self._client.hmget(group_key(group, topic), [f"position:{p}" for p in range(partitions)])
        return {partition: int(position) for partition, position in enumerate(found) if position is not None}

    def produce(self, outputs: Sequence[Outgoing]) -> None:
        with self._writing:
            for first in range(0, len(outputs), _PRODUCE_RECORDS):
                self._writer.append(outputs[first : first + _PRODUCE_RECORDS])

    def consumer(
        self,
        group: str,
        topics: Sequence[str],
        *,
        member: str,
        start: StartAt = StartAt(),  # noqa: B008 - StartAt is an immutable tuple
    ) -> EmbeddedConsumer:
        return EmbeddedConsumer(
            self._client,
            checked_name("group", group),
            [checked_name("topic", topic) for topic in topics],
            member,
            start,
            session_timeout_ms=self._session_timeout_ms,
            describe=self._describe,
        )

    def read(self, partition: TopicPartition, start: int, max_records: int) -> list[Record]:
        with answering(TransportError, f"reading {partition}"):
            entries: Any = self._client.xrange(stream_key(partition), entry_id(start), "+", max_records)
        return unpack(partition, entries)

    def close(self) -> None:
        self._client.close()

    def _describe(self, topic: str) -> TopicState:
        with answering(TransportError, f"looking up topic {topic}"):
            found: list[Any] = self._client.hmget(topic_key(topic), "id", "partitions")
        if found[0] is None or found[1] is None:
            raise UnknownTopicError(
                f"topic {topic} does not exist; `stream-calib topics create` creates it, as do the roles at start"
            )
        return TopicState(found[0].decode(), int(found[1]))
