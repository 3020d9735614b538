"""The alert `rolled_back`: somebody's hand decides what is served.

Open while a version is pinned, or one is served that is not the newest that was published; opened, updated and closed
in the commit of what people do, or of the publication that ends it.
"""

from __future__ import annotations

from stream_calib.alerts.model import AlertState
from stream_calib.alerts.standing import StandingAlert, told_of
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.changes import HAND_FIELD, Change, Moment
from stream_calib.snapshot.decision_log import Settled
from stream_calib.snapshot.operator_entries import Approve, Pin, Rollback, Unpin


class HandAlert:
    """Of one model key."""

    def __init__(self, key: ModelKey, generation: str, pane_ms: int) -> None:
        self._alert = StandingAlert(key, "rolled_back", pane_ms, generation=generation)
        self._pane_ms = pane_ms

    def note(
        self, change: Change[Rollback] | Change[Pin] | Change[Unpin], now: Moment, current: str, newest: str
    ) -> None:
        """Adds to the change what is told of it. `current`: what is served after it; `newest`: what was published last,
        "" where that is not known any more."""
        entry = change.entry
        is_pinned, newest = isinstance(entry, Pin), newest or current
        who = f"by {entry.actor}: {entry.reason}"
        evidence = {"what": entry.type, "version": current, "newest": newest, "actor": entry.actor}
        evidence |= {"reason": entry.reason}
        if not is_pinned and current == newest:
            self._tell(change, now, "", f"{current}, the newest that was published, is served again, {who}", evidence)
            return
        served = (
            f"{current} is served, and {newest} was published last" if current != newest else f"{current} is served"
        )
        until = (
            "it is pinned: no refit is published until `stream-calib snapshot unpin`, and it grows old"
            if is_pinned
            else "the next publication takes its place"
        )
        self._tell(change, now, f"{entry.type} {current} {entry.time_ms}", f"{served}, {who}; {until}", evidence)

    def ended(self, change: Change[Settled] | Change[Approve], now: Moment, version: str) -> None:
        """Adds to the publication of `version` that it ends what people decided before."""
        self._tell(change, now, "", f"{version} was published", {"version": version})

    def _tell(
        self,
        change: Change[Rollback] | Change[Pin] | Change[Unpin] | Change[Settled] | Change[Approve],
        now: Moment,
        news: str,
        diagnosis: str,
        evidence: dict[str, str],
    ) -> None:
        """`news`: what opens or updates it; "": it closes, where it is open."""
        told = told_of(now.fields[HAND_FIELD])
        if told.since_ms is None and not news:
            return
        state: AlertState = "close" if not news else "open" if told.since_ms is None else "update"
        since_ms = change.entry.pane * self._pane_ms
        after, alert = self._alert.event(told, state, since_ms, diagnosis, evidence, news)
        change.fields[HAND_FIELD] = after
        change.expect[HAND_FIELD] = now.fields[HAND_FIELD]
        change.appends["outbox"] = [*change.appends.get("outbox", []), alert.encode()]
