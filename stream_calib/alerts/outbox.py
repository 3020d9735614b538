"""The durable outbox: alerts are appended in the commit of what caused them, and delivered from there, in order.

The topic `alerts` and each hook (delivery_ledger.py) read it, each from a position of its own. At least once: an entry
whose delivery was confirmed but whose position could not be moved is delivered again. Receivers know a repeat by the
alert's `id`. Of those that all have read the newest stay; of what was dropped the alerts that are still open are kept
apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from stream_calib import fault_points
from stream_calib.alerts.delivery_catch_up import caught_up
from stream_calib.alerts.delivery_record import record_of
from stream_calib.alerts.model import Alert
from stream_calib.alerts.position import position_of
from stream_calib.alerts.refusal import alerts_of, read_or_refuse
from stream_calib.snapshot.canonical import canonical_json, content_id
from stream_calib.windows.state_store import Commit, StateStore

LIST = "outbox"
SENT, DROPPED, PASSED = "outbox_sent", "from:outbox", "outbox_passed"
"""Fields: how many entries are in the topic; how many were dropped; up to where they are of times that are over."""
OTHER_GENERATION = (
    "another generation of the state has taken the place of the one that raised it, and does not hold it to be open"
)
"""Diagnosis of what is closed when that happens."""
_FOLDED = "folded:outbox"
"""The blob with the last events of alerts that are open, of those that were dropped."""
_RAW_ALERTS = msgspec.json.Decoder(list[msgspec.Raw])
_KEPT = 1_000
"""So many that were read by all stay at least, and twice as many at most."""


class Unsent(NamedTuple):
    """The first entries that are not in the topic."""

    sent: str | None
    """The field as it was read."""
    end: int
    """Number of the next entry behind them."""
    entries: list[bytes]
    """Without those that were refused."""
    alerts: list[Alert]
    """Of the entries."""


def unsent(state: StateStore, sent: str | None, limit: int = 100) -> Unsent | None:
    """Up to `limit` entries that the topic does not have, oldest first; None where it has all. `sent`: the field SENT
    as it was read. Raises StateError where that is no number."""
    start = position_of({SENT: sent}, SENT)
    entries = state.entries(LIST, start, start + limit)
    if not entries:
        return None
    read = [(entry, alert) for entry, alert in zip(entries, alerts_of(entries), strict=True) if alert is not None]
    return Unsent(sent, start + len(entries), [entry for entry, _ in read], [alert for _, alert in read])


def confirm(state: StateStore, delivered: Unsent) -> bool:
    """The topic has them. False where another process moved the position meanwhile: it delivered too, and its position
    stands."""
    fault_points.before("alerts.sent")
    moved = state.commit(Commit(expect={SENT: delivered.sent}, fields={SENT: str(delivered.end)}))
    fault_points.after("alerts.sent")
    return moved


def drop_read(state: StateStore, positions: Iterable[int]) -> None:
    """Drops old entries. `positions`: of all hooks; the topic's is looked up. What any of them has not read stays."""
    fields = state.read([DROPPED, SENT])
    dropped = position_of(fields, DROPPED)
    first = min((position_of(fields, SENT), *positions)) - _KEPT
    if first - dropped < _KEPT:
        return
    found = _open_before(state)
    _fold(found, filter(None, alerts_of(state.entries(LIST, dropped, first))))
    folded = canonical_json([alert.model_dump(mode="json") for alert in found.values()])
    state.commit(Commit(fields, blobs={_FOLDED: folded}, trims={LIST: first}))


def waiting(state: StateStore) -> int:
    """How many alert events are not in the topic."""
    return max(0, state.length(LIST) - position_of(state.read([SENT]), SENT))


def take_place(state: StateStore, before: StateStore, hooks: Iterable[str]) -> None:
    """The outbox takes the place of another one, of another generation. All that is in it is of times that are over,
    and counts as delivered, to the topic and to all hooks; alerts that only the other one holds to be open are closed,
    and so are those of which it has not yet told the topic, or one of the hooks, that they are over. Where somebody
    delivers meanwhile, what is left stays to be delivered. Raises StateError where a position cannot be read.
    """
    sent, end = state.read([SENT])[SENT], state.length(LIST)
    ours = open_alerts(state)
    known = open_alerts(before, position_of(before.read([SENT]), SENT)) | open_alerts(before)
    for hook in hooks:
        record = record_of(before, hook)
        unheard = [one.alert for one in record.owed]
        if not record.is_whole:
            passed = position_of(before.read([PASSED]), PASSED)
            unheard += caught_up(record, kept(before, since=passed), lambda alert: True).missed
        known |= {alert.dedup_key: alert for alert in unheard if alert.state == "close"}
    closes = [_closed(alert, OTHER_GENERATION).encode() for key, alert in known.items() if key not in ours]
    appends = {LIST: closes} if closes else {}
    state.commit(Commit({SENT: sent}, {SENT: str(end), PASSED: str(end)}, appends))


def close_in(other: StateStore, state: StateStore, why: str) -> None:
    """Says in another outbox that all alerts which are open in this one are over: nobody reads this one any more. `why`
    is their diagnosis."""
    closes = [_closed(alert, why).encode() for alert in open_alerts(state).values()]
    if closes:
        other.commit(Commit(appends={LIST: closes}))


def _closed(alert: Alert, why: str) -> Alert:
    changed = {"id": content_id(alert.id, "close"), "state": "close", "evidence": {}, "diagnosis": why}
    return alert.model_copy(update=changed)


def open_alerts(state: StateStore, before: int | None = None) -> dict[str, Alert]:
    """Alerts that are open, delivered or not, in the order in which they were opened: deduplication key -> the last
    event of it. Reads all that is kept of the outbox, or what is before entry number `before`, one that is kept."""
    found: dict[str, Alert] = {}
    _fold(found, kept(state, before))
    return found


def kept(state: StateStore, before: int | None = None, since: int = 0) -> list[Alert]:
    """The events that are kept from entry number `since` on, oldest first; in front of them the last events of those
    alerts that were open then. `before`: see open_alerts."""
    while True:
        dropped = state.read([DROPPED])
        opened, events = _open_before(state), alerts_of(state.entries(LIST, 0, before))
        if state.read([DROPPED]) == dropped:  # else entries were dropped between the reads
            first = max(0, since - position_of(dropped, DROPPED))
            _fold(opened, filter(None, events[:first]))
            return [*opened.values(), *filter(None, events[first:])]


def _open_before(state: StateStore) -> dict[str, Alert]:
    """Those that were open when the first entry that is kept was appended."""
    (folded,) = state.blobs([_FOLDED])
    if folded is None:
        return {}
    plain = read_or_refuse("outbox", folded, _RAW_ALERTS.decode) or []
    return {alert.dedup_key: alert for alert in alerts_of(map(bytes, plain)) if alert is not None}


def _fold(found: dict[str, Alert], events: Iterable[Alert]) -> None:
    for alert in events:
        if alert.state == "close":
            found.pop(alert.dedup_key, None)
        else:
            found[alert.dedup_key] = alert
