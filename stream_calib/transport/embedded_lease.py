"""One member's share of the partitions of a group: heartbeats, tokens, and what the log says is committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

import redis
from redis.client import Pipeline

from stream_calib.errors import TopicRecreatedError, TransportError
from stream_calib.redis_connection import LuaScript
from stream_calib.transport.embedded_layout import (
    WRITER_LIFE_MS,
    group_key,
    groups_key,
    members_key,
    topic_key,
    writer_key,
)
from stream_calib.transport.port import TopicPartition

_PACKAGE = "stream_calib.transport"
_LEASE = LuaScript(_PACKAGE, "embedded_lease.lua", error_class=TransportError)
_LEAVE = LuaScript(_PACKAGE, "embedded_leave.lua", error_class=TransportError)


@dataclass(slots=True)
class Lease:
    """One partition that this member owns."""

    token: str
    committed: int | None
    end: int
    """Offset of the next record, as of the last heartbeat."""
    began_with_group: bool
    """False for a partition that was added after the group's first poll."""


class Membership:
    """One instance of a named member of a group. A newer instance of the same name replaces it."""

    def __init__(
        self, client: redis.Redis, group: str, topics: Sequence[str], member: str, *, session_timeout_ms: int
    ) -> None:
        self.group = group
        self.member = member
        self.instance = uuid4().hex
        self.leases: dict[TopicPartition, Lease] = {}
        self.beat = 0
        self._client = client
        self._topics = tuple(topics)
        self._ids = dict.fromkeys(self._topics, "")
        self._session_timeout_ms = session_timeout_ms
        self._joined = False
        _LEASE.load(client)

    def send_heartbeat(self, pipeline: Pipeline) -> None:
        """Adds the heartbeat to a pipeline; its reply goes to `take_reply`.

        It belongs behind the reads of the same poll: when the server still remembers this heartbeat at the commit, it
        cannot have lost what was read before.
        """
        keys = [writer_key(self.instance)]
        for topic in self._topics:
            keys += [topic_key(topic), group_key(self.group, topic), members_key(self.group, topic), groups_key(topic)]
        pipeline.evalsha(
            _LEASE.sha,
            len(keys),
            *keys,
            self.group,
            self.member,
            self.instance,
            self._session_timeout_ms,
            WRITER_LIFE_MS,
            0 if self._joined else 1,
            self.beat,
            *(self._ids[topic] for topic in self._topics),
        )

    def reload(self) -> None:
        """Sends the script again, for a server that was restarted and answered NOSCRIPT."""
        _LEASE.load(self._client)

    def take_reply(self, reply: list[object]) -> bool:
        """Takes up the new assignment. False when the server has lost writes since the last heartbeat.

        Raises TopicRecreatedError; TransportError where a topic is missing or a newer instance has this member's name.
        """
        status, first = reply[0], reply[1]
        if status != b"ok":
            assert isinstance(first, int)
            self._refused(status, self._topics[first - 1])
        before, self_beat = reply[1], reply[2]
        assert isinstance(before, int)
        assert isinstance(self_beat, int)
        whole = before >= self.beat
        leases: dict[TopicPartition, Lease] = {}
        for topic, assigned in zip(self._topics, reply[3:], strict=True):
            assert isinstance(assigned, list)
            self._ids[topic] = assigned[0].decode()
            first_partitions = int(assigned[1])
            for partition, token, committed, end in zip(*(assigned[i::4] for i in (2, 3, 4, 5)), strict=True):
                leases[TopicPartition(topic, partition)] = Lease(
                    token.decode(), int(committed) if committed else None, int(end), partition < first_partitions
                )
        self.leases = leases
        self.beat = self_beat
        self._joined = True
        return whole

    def leave(self) -> None:
        """Gives everything up at once. Raises TransportError when the log is away."""
        keys = [writer_key(self.instance)]
        for topic in self._topics:
            keys += [group_key(self.group, topic), members_key(self.group, topic)]
        _LEAVE(self._client, keys, [self.member, self.instance])

    def _refused(self, status: object, topic: str) -> None:
        if status == b"missing":
            raise TransportError(f"topic {topic} does not exist: create it before consuming it")
        if status == b"recreated":
            raise TopicRecreatedError(
                f"topic {topic} was deleted and created again: the positions of group {self.group} belong to the old"
                " one; begin with another group, or delete this one, once the old records are not needed"
            )
        raise TransportError(
            f"another process has joined group {self.group} as member {self.member}: this one must end;"
            " give each process a member name of its own"
        )
