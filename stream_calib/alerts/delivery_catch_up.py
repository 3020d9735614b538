"""What a hook has to be told so that it ends up right about alerts whose events it did not take over one by one: as it
is new, was away for too long, or has a record of which not all can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from stream_calib.alerts.delivery_record import HookRecord
from stream_calib.alerts.model import Alert


class CaughtUp(NamedTuple):
    """What the record lacks."""

    missed: list[Alert]
    """Behind what is owed already; oldest first."""
    told: dict[str, int]
    """See Ledger.told."""


def caught_up(record: HookRecord, events: Iterable[Alert], tells: Callable[[Alert], bool]) -> CaughtUp:
    """The last event of each alert that the hook would else hold to be over while it is open, or to be open while it is
    over. Where it is not known what it is owed, it may not know of the last event of any that is open; where it is not
    known what it was told of, it may hold all to be open that it may have been told of.

    `events`: see outbox.kept. `tells`: see Ledger.
    """
    last: dict[str, Alert] = {}
    heard = set[str]()
    for alert in events:
        last.pop(alert.dedup_key, None)
        last[alert.dedup_key] = alert
        if tells(alert):
            heard.add(alert.dedup_key)
    ends = {o.alert.dedup_key: o.alert.state != "close" for o in record.owed}
    holds = dict.fromkeys(record.told, True) | ends
    told = record.told if record.is_told_known else dict.fromkeys([*heard, *holds], 0)
    missed = []
    for key, alert in last.items():
        is_open = alert.state != "close"
        may_hold = holds.get(key, not record.is_told_known and key in heard)
        may_lack = not (holds.get(key, False) and (record.is_owed_known or key in ends))
        if (is_open and may_lack and tells(alert)) or (not is_open and may_hold):
            missed.append(alert)
    return CaughtUp(missed, told)
