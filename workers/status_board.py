"""What each running process says of itself, for `status` and for the closer: one hash per model key in the state's
server.

Best effort: a status may be old (its age is shown) or lost with its process; nothing correct depends on it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from stream_calib.errors import StateUnavailableError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import RedisClient
from stream_calib.redis_connection import answering

_FORGET_AFTER_MS = 7 * 86_400_000


class MemberStatus(msgspec.Struct, frozen=True):
    """One process and role."""

    role: str
    member: str
    time_ms: int
    """When it was written, wall time."""
    facts: dict[str, Any]
    """Plain values, by role: `snapshot` served, `inputs` read, counts of rejects, ..."""


class StatusBoard:
    """Hash ``sc:{<model>/<version>}:status``: ``<role>/<member>`` -> JSON."""

    def __init__(self, client: RedisClient, model_key: ModelKey) -> None:
        self._client = client
        self._key = f"sc:{{{model_key}}}:status"

    def put(self, status: MemberStatus) -> None:
        with answering(StateUnavailableError, "writing a status"):
            self._client.hset(self._key, f"{status.role}/{status.member}", msgspec.json.encode(status))

    def drop(self, role: str, member: str) -> None:
        """Forgets a process that ends."""
        with answering(StateUnavailableError, "dropping a status"):
            self._client.hdel(self._key, f"{role}/{member}")

    def all(self, now_ms: int) -> list[MemberStatus]:
        """Statuses by role and member; those of processes long gone are dropped on the way."""
        with answering(StateUnavailableError, "reading statuses"):
            raw: dict[bytes, bytes] = self._client.hgetall(self._key)  # type: ignore[assignment]  # sync client
            found = {name: msgspec.json.decode(value, type=MemberStatus) for name, value in raw.items()}
            for name, status in found.items():
                if now_ms - status.time_ms > _FORGET_AFTER_MS:
                    self._client.hdel(self._key, name.decode())
        return sorted(found.values(), key=lambda s: (s.role, s.member))
