"""One step of the decision log together with all that belongs to it.

Each change is one compare-and-set on the log's tip and on the last decided pane, and writes everything at once:
snapshot blob, pointer, history, decision log, report, alerts. So there is no moment at which a pointer names a blob
that is not there, and no "blob first" is needed. Where the tip or the cursor moved meanwhile, the change is checked
and tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from stream_calib import metrics
from stream_calib.errors import StateError, StreamCalibError
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.canonical import canonical_json
from stream_calib.snapshot.decision_log import DecisionLog, Entry, chain
from stream_calib.snapshot.log_reader import LogReader
from stream_calib.snapshot.model import sequence_of
from stream_calib.windows.state_store import Commit, StateStore

_LOG = logging.getLogger(__name__)

REFIT_LEASE = "refit"
HAND_FIELD = "rolled_back"
"""What was told last of what people decided (snapshot/hand_alert.py)."""
_ATTEMPTS = 20
_REPLICA_WITHIN_MS = 1_000
_READ = ("decided", "first_pane", "current", "sequence", "open_request", f"token:{REFIT_LEASE}", HAND_FIELD)


@dataclass(frozen=True, slots=True)
class Moment:
    """The fields as read at one moment, and the log up to there."""

    fields: dict[str, str | None]
    log: DecisionLog

    @property
    def next_pane(self) -> int:
        """decided + 1: where entries that are written now take effect."""
        decided, first = self.fields["decided"], self.fields["first_pane"]
        if decided:
            return int(decided) + 1
        if first:
            return int(first)
        raise StateError("nothing has been read yet for this model key, so there is no pane that a decision could name")


_E = TypeVar("_E", bound=Entry)


@dataclass
class Change(Generic[_E]):
    """An entry, and what is written and expected with it; as in `Commit`."""

    entry: _E
    before: list[Entry] = field(default_factory=list)
    """Entries of the same step that stand before it."""
    fields: dict[str, str] = field(default_factory=dict)
    appends: dict[str, list[bytes]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    deletes: list[str] = field(default_factory=list)
    """Blobs."""
    expect: dict[str, str | None] = field(default_factory=dict)


class LogChanges:
    """Not thread-safe; several processes may each have one."""

    def __init__(self, state: StateStore, key: ModelKey, clock_ms: Callable[[], int]) -> None:
        self._state, self._key, self._clock_ms = state, key, clock_ms
        self._reader = LogReader(state)

    def moment(self) -> Moment:
        return Moment(*self._reader.read(_READ))

    def commit(self, make: Callable[[Moment], Change[_E]]) -> _E:
        """The entry as written. `make` may be called again, for a later moment; what it raises ends the attempt."""
        for _ in range(_ATTEMPTS):
            now = self.moment()
            change = make(now)
            encoded = [entry.encode() for entry in (*change.before, change.entry)]
            expect = change.expect | {name: now.fields[name] for name in ("tip", "decided", "open_request")}
            tip, length = str(chain(now.log.tip, encoded)), now.log.length + len(encoded)
            fields = change.fields | {"tip": tip, "log_length": str(length)}
            appends = {name: entries for name, entries in change.appends.items() if entries} | {"decisions": encoded}
            if self._state.commit(Commit(expect, fields, appends, change.blobs, change.deletes)):
                self._wait_for_replica()
                return change.entry
        raise StateError(f"decision log of {self._key} moved on {_ATTEMPTS} times in a row; try again")

    def _wait_for_replica(self) -> None:
        """A failover must not take back what is answered here: people's acts cannot be derived again. What no replica
        has in time stands all the same, since readers see it already."""
        try:
            is_safe = self._state.wait_for_replica(_REPLICA_WITHIN_MS) is not False
        except StreamCalibError as error:  # whatever it is, the commit before it was answered and stands
            _LOG.warning("nobody could wait for a replica: %s", error)
            is_safe = False
        if not is_safe:
            metrics.UNREPLICATED.labels(str(self._key)).inc()
            _LOG.warning(
                "no replica had the last entry of the decision log of %s within %g s; a failover now would lose it",
                self._key,
                _REPLICA_WITHIN_MS / 1000,
            )

    def moved(
        self,
        what: str,
        version: str,
        before: str | None,
        pane: int,
        actor: str,
        reason: str,
        *,
        structure: str | None = None,
        request_id: str | None = None,
        time_ms: int | None = None,
    ) -> bytes:
        """An entry of the list `history`. `structure`: the version that a level snapshot is a level of."""
        of = {} if structure is None else {"structure": structure}
        return canonical_json(
            of
            | {
                "what": what,
                "version": version,
                "sequence": sequence_of(version),
                "before": before,
                "pane": pane,
                "actor": actor,
                "reason": reason,
                "request_id": request_id,
                "time_ms": self._clock_ms() if time_ms is None else time_ms,
            }
        )
