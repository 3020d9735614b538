"""What a hook was not told is owed to it again: after its address or secret was mended.

Of each alert that a hook was not told of, the events that were given up are owed again, in their order, and behind them
the last event of it: so whatever follows alerts by their last event ends in the right state. That a hook was told of
the end already is on record nowhere, so it may be told of it twice. Of an alert that is over, whose end is kept no
more, nothing is owed: an incident would be opened that nobody closes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from stream_calib.alerts.delivery_ledger import Ledger
from stream_calib.alerts.delivery_record import field_of, given_up_of, redelivered_field
from stream_calib.alerts.model import Alert
from stream_calib.alerts.outbox import DROPPED, LIST, PASSED, SENT, kept
from stream_calib.alerts.refusal import alerts_of, read_or_refuse
from stream_calib.errors import StateError
from stream_calib.snapshot.canonical import canonical_json
from stream_calib.windows.state_store import StateStore

_ATTEMPTS = 20


class Redelivered(NamedTuple):
    """Events of one outbox."""

    owed: int
    over: int
    """Left: their alert is over, and its end is kept no more; the hook may never have been told of it."""


def redeliver(store: StateStore, hook: str, tells: Callable[[Alert], bool], now_ms: int) -> Redelivered:
    """Owes the hook again what it was not told of the outbox, as far as that is kept; it is on record as given up no
    more. The role `alert` tells it at its next look. `tells`: see Ledger.

    Raises StateUnavailableError when the store is away, StateError where a position cannot be read.
    """
    marker = redelivered_field(hook)
    for _ in range(_ATTEMPTS):
        fields = store.read([field_of(hook), SENT, DROPPED, PASSED, marker])
        end, records = given_up_of(store)
        contents = [canonical_json(record.alert) for record in records if record.hook == hook]
        read = [read_or_refuse("given_up", content, Alert.decode) for content in contents]
        lost = [alert for alert in read if alert is not None]
        if not lost:
            return Redelivered(0, 0)
        ledger = Ledger(store, hook, tells)
        ledger.refresh(fields, now_ms)
        owed = [one.alert for one in ledger.owed]
        comes = [alert for alert in alerts_of(store.entries(LIST, ledger.position)) if alert is not None]
        again, over = _again(lost, owed, kept(store, ledger.position), comes)
        if ledger.owe_again(again, now_ms, {marker: fields[marker]}, {marker: str(end)}):
            waited = {alert.id for alert in owed}
            return Redelivered(sum(alert.id not in waited for alert in again), over)
    raise StateError(f"the record of the hook {hook} could not be changed in {_ATTEMPTS} attempts; is it very busy?")


def _again(
    lost: Sequence[Alert], owed: Sequence[Alert], before: Sequence[Alert], comes: Sequence[Alert]
) -> tuple[list[Alert], int]:
    """What is owed again, and how many events are left. `before`: events that the hook has taken over; `comes`: those
    that it will."""
    by_alert: dict[str, dict[str, Alert]] = {}
    for alert in lost:
        by_alert.setdefault(alert.dedup_key, {})[alert.id] = alert
    last = {alert.dedup_key: alert for alert in before}
    come = {alert.dedup_key for alert in comes}
    again: list[Alert] = []
    over = 0
    for key, events in by_alert.items():
        waits = {alert.id: alert for alert in owed if alert.dedup_key == key}
        newest = last.get(key, list(events.values())[-1])
        if waits:
            lacks = [alert for alert in events.values() if alert.id not in waits]
            again += [*lacks, *waits.values()] if lacks else []
        elif key in come:
            again += events.values()
        elif key in last or newest.state == "close":
            again += [*(alert for alert in events.values() if alert.id != newest.id), newest]
        else:
            over += len(events)
    return again, over
