"""Gaps: records that retention took before they were read, where the operator has chosen to go on without them.

Each gap is one entry of the list `gaps` of the deployment's own state, written with its alert in one commit; the field
`gaps` is the list's length. There is one alert of each role and partition: a further gap while it is open is news of
it, and it closes when what could have joined the lost records of the last one is past.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from stream_calib import metrics
from stream_calib.alerts.model import Alert, AlertKind, AlertState, alert_of
from stream_calib.errors import PositionLostError, StateError
from stream_calib.events.contracts import ModelKey
from stream_calib.windows.state_store import Commit, StateStore

_LOG = logging.getLogger(__name__)

GAPS, _CLOSED = "gaps", "gaps_closed"
_KIND: AlertKind = "input_gap"
_ATTEMPTS = 100


class Gap(msgspec.Struct, frozen=True):
    """Positions first <= position < end of a partition that nobody has read."""

    role: str
    topic: str
    partition: int
    topic_id: str
    first: int
    end: int
    time_ms: int
    """When it was found, wall time."""

    @property
    def records(self) -> int:
        """Most records that it can have held."""
        return self.end - self.first

    @property
    def where(self) -> str:
        """Whose alert it is."""
        return f"{self.role}:{self.topic}-{self.partition}"


class InputGaps:
    """The gaps of a deployment. Raises StateUnavailableError when the store is away."""

    def __init__(self, state: StateStore, scope: ModelKey, pane_ms: int) -> None:
        """`state`, `scope`: of the deployment (windows/model_registry.py)."""
        self._state, self._scope, self._pane_ms = state, scope, pane_ms

    def all(self) -> list[Gap]:
        """Every gap there ever was, oldest first."""
        return [_decoded(raw) for raw in self._state.entries(GAPS, 0)]

    def record(self, gap: Gap) -> bool:
        """Puts the gap on record, with its alert; False where another process did, or this one before it failed."""
        for _ in range(_ATTEMPTS):
            found = self._state.read((GAPS, _CLOSED))
            known = [_decoded(raw) for raw in self._state.entries(GAPS, 0, int(found[GAPS] or 0))]
            if any(_same_end(other, gap) for other in known):
                return False
            is_open = any(other.where == gap.where for other in known[int(found[_CLOSED] or 0) :])
            alert = self._alert(
                gap,
                "update" if is_open else "open",
                gap.time_ms,
                f"{gap.topic}-{gap.partition}: up to {gap.records} records, {gap.first} to {gap.end - 1}, were gone"
                f" before {gap.role} had read them; it goes on without them. Lengthen the retention of {gap.topic}, and"
                f" look why {gap.role} was so far behind",
            )
            change = Commit(
                found,
                {GAPS: str(len(known) + 1)},
                {GAPS: [msgspec.json.encode(gap)], "outbox": [alert.encode()]},
            )
            if self._state.commit(change):
                metrics.POSITIONS_LOST.labels(gap.role, gap.topic).inc(gap.records)
                _LOG.error("%s", alert.diagnosis)
                return True
        raise StateError(f"a gap could not be put on record in {_ATTEMPTS} attempts; is the store being wiped?")

    def close_past(self, now_ms: int, past_ms: int) -> None:
        """Closes the alerts of which the last gap was found `past_ms` ago or earlier, in their order."""
        fields = self._state.read((GAPS, _CLOSED))
        closed = int(fields[_CLOSED] or 0)
        waiting = [_decoded(raw) for raw in self._state.entries(GAPS, closed, int(fields[GAPS] or 0))]
        past = next((i for i, gap in enumerate(waiting) if gap.time_ms > now_ms - past_ms), len(waiting))
        if past:
            why = "what could have joined the lost records is past"
            last = {gap.where: gap for gap in waiting}
            over = [gap for gap in waiting[:past] if last[gap.where] is gap]
            alerts = [self._alert(gap, "close", now_ms, why).encode() for gap in over]
            self._state.commit(Commit(fields, {_CLOSED: str(closed + past)}, {"outbox": alerts} if alerts else {}))

    def _alert(self, gap: Gap, state: AlertState, now_ms: int, diagnosis: str) -> Alert:
        return alert_of(
            self._scope,
            _KIND,
            state,
            (_KIND, state, gap.where, gap.topic_id, gap.first, gap.end),
            subject=gap.where,
            pane=now_ms // self._pane_ms,
            since_ms=gap.time_ms,
            evidence=msgspec.to_builtins(gap),
            diagnosis=diagnosis,
        )


def skippable(error: PositionLostError) -> Mapping[tuple[str, int], tuple[int, int]]:
    """What was lost and where to go on: partition -> (position, where what is left begins).

    Raises the error again where there is nowhere to go on: the log ends before the position, so it lost its own end.
    """
    if not error.lost or any(begins <= position for position, begins in error.lost.values()):
        raise error
    return error.lost


def _same_end(known: Gap, gap: Gap) -> bool:
    """A repeat after a failure may have read a part, so it may begin later."""
    same = (known.role, known.topic_id, known.partition) == (gap.role, gap.topic_id, gap.partition)
    return same and known.first <= gap.first and gap.end <= known.end


def _decoded(raw: bytes) -> Gap:
    try:
        return msgspec.json.decode(raw, type=Gap)
    except msgspec.MsgspecError as error:
        raise StateError(
            f"an entry of the list of gaps cannot be read: {error}; restore the state from a backup"
        ) from error
