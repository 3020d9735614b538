"""The durable outbox: alerts are appended in the commit of what caused them, and delivered from there, in order.

At least once: an entry whose delivery was confirmed but whose position could not be moved is delivered again. Receivers
know a repeat by the alert's `id`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stream_calib import fault_points
from stream_calib.alerts.model import Alert
from stream_calib.transport.port import Outgoing
from stream_calib.windows.state_store import Commit, StateStore


def drain(
    state: StateStore, produce: Callable[[Sequence[Outgoing]], None], topic: str, limit: int = 100
) -> list[Alert]:
    """Delivers up to `limit` alerts to the topic, keyed by deduplication key; returns those delivered, oldest first.

    `produce` (as `Log.produce`) returns when the log has the records; what it raises leaves the position where it was.
    Where another process moved the position meanwhile, it delivered too, and its position stands. Raises StateError
    where an entry is no alert.
    """
    sent = state.read(["outbox_sent"])["outbox_sent"]
    start = int(sent or 0)
    raw = state.entries("outbox", start, start + limit)
    if not raw:
        return []
    alerts = [Alert.decode(entry) for entry in raw]
    fault_points.before("alerts.send")
    produce([Outgoing(topic, a.dedup_key.encode(), entry) for a, entry in zip(alerts, raw, strict=True)])
    fault_points.after("alerts.send")
    fault_points.before("alerts.sent")
    state.commit(Commit(expect={"outbox_sent": sent}, fields={"outbox_sent": str(start + len(raw))}))
    fault_points.after("alerts.sent")
    return alerts


def waiting(state: StateStore) -> int:
    """How many alert events have not been delivered."""
    sent = int(state.read(["outbox_sent"])["outbox_sent"] or 0)
    return len(state.entries("outbox", sent))


def open_alerts(state: StateStore) -> dict[str, Alert]:
    """Alerts that are open, delivered or not, in the order in which they were opened: deduplication key -> the last
    event of it. Reads the whole outbox. Raises StateError where an entry is no alert."""
    found: dict[str, Alert] = {}
    for raw in state.entries("outbox", 0):
        alert = Alert.decode(raw)
        if alert.state == "close":
            found.pop(alert.dedup_key, None)
        else:
            found[alert.dedup_key] = alert
    return found
