"""Whether anybody works on a model key's state, and keeping it so for a while."""

from __future__ import annotations

from collections.abc import Callable

from stream_calib.errors import StateError
from workers.deployment import State

WORKERS = ("monitor", "refit", "alert")
"""Roles that change the state, and have a status for every key; those that serve have one for what they have served."""
LEASES = ("closer", "refit", "alert")
_SILENT_MS = 10_000
_LEASE_MS = 60_000
_RENEW_AFTER_MS = 10_000


class AtRest:
    """Holds the leases of a generation while something is done with the whole of it, as a context manager.

    Raises StateError where a role is at work: it said so within ten seconds, or holds a lease.
    """

    def __init__(self, state: State, member: str, clock_ms: Callable[[], int]) -> None:
        """`clock_ms`: wall time."""
        self._state, self._member, self._clock_ms = state, member, clock_ms
        self._renewed_at = 0

    def __enter__(self) -> AtRest:
        now = self._clock_ms()
        for status in self._state.board.all(now):
            if status.role in WORKERS and now - status.time_ms <= _SILENT_MS:
                raise self._busy(f"{status.role} {status.member} is at work")
        try:
            self.keep()
        except StateError:
            self._release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    def keep(self) -> None:
        """To be called now and then. Raises StateError where a lease was lost."""
        now = self._clock_ms()
        if now - self._renewed_at < _RENEW_AFTER_MS:
            return
        for lease in LEASES:
            if self._state.store.acquire_lease(lease, self._member, _LEASE_MS) is None:
                raise self._busy(f"the lease `{lease}` is held")
        self._renewed_at = now

    def _busy(self, what: str) -> StateError:
        return StateError(
            f"{self._state.model_key}: {what}; stop the roles {', '.join(WORKERS)} (calibrate may go on), and try again"
        )

    def _release(self) -> None:
        for lease in LEASES:
            self._state.store.release_lease(lease, self._member)
