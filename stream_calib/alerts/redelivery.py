"""What a hook was not told is owed to it again: after its address or secret was mended.

Of each alert that a hook was not told of, the events that were given up are owed again, in their order, and behind them
the newest event of it where it is open: so whatever follows alerts by their last event ends in the right state. Of an
alert that is over, of whose end the hook was told, nothing is: an incident would be opened that nobody closes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from stream_calib.alerts.delivery_ledger import Ledger
from stream_calib.alerts.delivery_record import field_of, given_up_of, redelivered_field
from stream_calib.alerts.model import Alert
from stream_calib.alerts.outbox import DROPPED, PASSED, SENT, open_alerts
from stream_calib.errors import StateError
from stream_calib.snapshot.canonical import canonical_json
from stream_calib.windows.state_store import StateStore

_ATTEMPTS = 20


class Redelivered(NamedTuple):
    """Events of one outbox."""

    owed: int
    over: int
    """Left, since the hook knows already that their alert is over."""


def redeliver(store: StateStore, hook: str, tells: Callable[[Alert], bool], now_ms: int) -> Redelivered:
    """Owes the hook again what it was not told of the outbox, as far as that is kept; it is on record as given up no
    more. The role `alert` tells it at its next look. `tells`: see Ledger.

    Raises StateUnavailableError when the store is away, StateError where a position cannot be read.
    """
    marker = redelivered_field(hook)
    for _ in range(_ATTEMPTS):
        fields = store.read([field_of(hook), SENT, DROPPED, PASSED, marker])
        end, records = given_up_of(store)
        lost = [Alert.decode(canonical_json(record.alert)) for record in records if record.hook == hook]
        if not lost:
            return Redelivered(0, 0)
        ledger = Ledger(store, hook, tells)
        ledger.refresh(fields, now_ms)
        again = _again(lost, [owed.alert for owed in ledger.owed], open_alerts(store))
        if ledger.owe_again(again, now_ms, {marker: fields[marker]}, {marker: str(end)}):
            of = {alert.dedup_key for alert in again}
            return Redelivered(len(again), sum(alert.dedup_key not in of for alert in lost))
    raise StateError(f"the record of the hook {hook} could not be changed in {_ATTEMPTS} attempts; is it very busy?")


def _again(lost: Sequence[Alert], owed: Sequence[Alert], opened: Mapping[str, Alert]) -> list[Alert]:
    by_alert: dict[str, dict[str, Alert]] = {}
    for alert in lost:
        by_alert.setdefault(alert.dedup_key, {})[alert.id] = alert
    waiting = {alert.dedup_key for alert in owed}
    again: list[Alert] = []
    for key, events in by_alert.items():
        newest = opened.get(key)
        if newest is not None and key not in waiting:
            again += (events | {newest.id: newest}).values()
        elif key in waiting or list(events.values())[-1].state == "close":
            again += events.values()
    return again
