"""The durable outbox: alerts are appended in the commit of what caused them, and delivered from there, in order.

At least once: an entry whose delivery was confirmed but whose position could not be moved is delivered again. Receivers
know a repeat by the alert's `id`. Of those that were delivered the newest stay; of what was dropped the alerts that are
still open are kept apart.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from stream_calib import fault_points
from stream_calib.alerts.model import Alert
from stream_calib.snapshot.canonical import canonical_json
from stream_calib.transport.port import Outgoing
from stream_calib.windows.state_store import Commit, StateStore

_LIST, _SENT, _FROM = "outbox", "outbox_sent", "from:outbox"
_FOLDED = "folded:outbox"
"""The blob with the last events of alerts that are open, of those that were dropped."""
_KEPT = 1_000
"""So many delivered ones stay at least, and twice as many at most."""


def drain(
    state: StateStore, produce: Callable[[Sequence[Outgoing]], None], topic: str, limit: int = 100
) -> list[Alert]:
    """Delivers up to `limit` alerts to the topic, keyed by deduplication key; returns those delivered, oldest first.

    `produce` (as `Log.produce`) returns when the log has the records; what it raises leaves the position where it was.
    Where another process moved the position meanwhile, it delivered too, and its position stands. Raises StateError
    where an entry is no alert.
    """
    sent = state.read([_SENT])[_SENT]
    start = int(sent or 0)
    raw = state.entries(_LIST, start, start + limit)
    if not raw:
        return []
    alerts = [Alert.decode(entry) for entry in raw]
    fault_points.before("alerts.send")
    produce([Outgoing(topic, a.dedup_key.encode(), entry) for a, entry in zip(alerts, raw, strict=True)])
    fault_points.after("alerts.send")
    fault_points.before("alerts.sent")
    moved = state.commit(Commit(expect={_SENT: sent}, fields={_SENT: str(start + len(raw))}))
    fault_points.after("alerts.sent")
    if moved:
        _drop_delivered(state, start + len(raw))
    return alerts


def _drop_delivered(state: StateStore, sent: int) -> None:
    fields = state.read([_FROM])
    dropped, first = int(fields[_FROM] or 0), sent - _KEPT
    if first - dropped < _KEPT:
        return
    found = _open_before(state)
    _fold(found, state.entries(_LIST, dropped, first))
    folded = canonical_json([alert.model_dump(mode="json") for alert in found.values()])
    state.commit(Commit({_FROM: fields[_FROM], _SENT: str(sent)}, blobs={_FOLDED: folded}, trims={_LIST: first}))


def waiting(state: StateStore) -> int:
    """How many alert events have not been delivered."""
    return max(0, state.length(_LIST) - int(state.read([_SENT])[_SENT] or 0))


def pass_over(state: StateStore) -> None:
    """Counts all that is in the outbox as delivered: it is of times that are over. Where somebody delivers meanwhile,
    what is left stays to be delivered."""
    sent, end = state.read([_SENT])[_SENT], state.length(_LIST)
    if end > int(sent or 0):
        state.commit(Commit(expect={_SENT: sent}, fields={_SENT: str(end)}))


def open_alerts(state: StateStore) -> dict[str, Alert]:
    """Alerts that are open, delivered or not, in the order in which they were opened: deduplication key -> the last
    event of it. Reads all that is kept of the outbox. Raises StateError where an entry is no alert."""
    while True:
        dropped = state.read([_FROM])
        found = _open_before(state)
        _fold(found, state.entries(_LIST, 0))
        if state.read([_FROM]) == dropped:  # else entries were dropped between the reads
            return found


def _open_before(state: StateStore) -> dict[str, Alert]:
    """Those that were open when the first entry that is kept was appended."""
    (folded,) = state.blobs([_FOLDED])
    alerts = [] if folded is None else [Alert.decode(canonical_json(plain)) for plain in json.loads(folded)]
    return {alert.dedup_key: alert for alert in alerts}


def _fold(found: dict[str, Alert], entries: Sequence[bytes]) -> None:
    for raw in entries:
        alert = Alert.decode(raw)
        if alert.state == "close":
            found.pop(alert.dedup_key, None)
        else:
            found[alert.dedup_key] = alert
