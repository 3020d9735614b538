"""What one hook has been told of one outbox, and what it is owed: kept with the outbox, so that nothing is lost when a
process dies.

The hook takes every entry of the outbox over as soon as it is there, whether it can be told now or not, so that no hook
keeps the outbox from being trimmed. What it is owed is bounded: see `MOST_OWED`.

Kept in the outbox's state for the hook `<name>`: the field `hook:<name>`, `<number of the next entry>:<changes so
far>`, and the blob of the same name, both written in one commit; and in the list `given_up` what no hook will be told.
The blob `refused:hook:<name>` has the record as it was when something of it was refused last: it is written anew then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import msgspec

from stream_calib import fault_points, metrics
from stream_calib.alerts.acknowledgement import Acknowledged
from stream_calib.alerts.delivery_catch_up import caught_up
from stream_calib.alerts.delivery_record import (
    GIVEN_UP,
    MOST_OWED,
    GivenUp,
    GivenUpReason,
    HookRecord,
    Owed,
    bounded,
    decoded,
    encoded,
    field_of,
    refused_blob,
)
from stream_calib.alerts.model import Alert
from stream_calib.alerts.outbox import DROPPED, PASSED, SENT, kept
from stream_calib.alerts.position import position_of
from stream_calib.alerts.refusal import read_or_refuse
from stream_calib.errors import StateError
from stream_calib.windows.state_store import Commit, StateStore

_LOG = logging.getLogger(__name__)

_GIVEN_UP_KEPT = 200
_NO_ENTRY = -1
"""In place of the number of what is owed for another reason than an entry that was read."""
_ATTEMPTS = 100


class Ledger:
    """Of one hook and outbox. Not thread-safe. What another process has changed is seen by `refresh`; a change that
    comes too late for it is lost here, and the events are owed still.

    Raises StateUnavailableError when the store is away, StateError where what it holds cannot be read.
    """

    def __init__(self, store: StateStore, hook: str, tells: Callable[[Alert], bool]) -> None:
        """`tells`: whether the hook is told of such an alert. It is told of the end of one that it knows in any
        case."""
        self._store, self._hook, self._tells = store, hook, tells
        self._name = field_of(hook)
        self._field: str | None = None
        """As it was last read or written; None: not read yet."""
        self._changes = 0
        self.position = 0
        """Number of the next entry of the outbox to take over."""
        self.owed: list[Owed] = []
        """Oldest first."""
        self.told: dict[str, int] = {}
        """Alerts that the hook knows, or may know, to be open: deduplication key -> time of the acknowledgement that it
        was told of, epoch milliseconds, 0 where of none."""

    def refresh(self, fields: Mapping[str, str | None], now_ms: int) -> None:
        """Reads the ledger anew where it is not as this process left it. `fields`: of the outbox's state, as they were
        just read, with `hook:<name>`, DROPPED and PASSED."""
        if self._field is None or fields[self._name] != self._field or self._is_behind(fields):
            self._load(now_ms)

    def _is_behind(self, fields: Mapping[str, str | None]) -> bool:
        """Whether entries that it has not taken over are gone, or are of times that are over."""
        return self.position < max(position_of(fields, DROPPED), position_of(fields, PASSED))

    def _load(self, now_ms: int) -> None:
        names = [self._name, SENT, DROPPED, PASSED]
        for _ in range(_ATTEMPTS):
            fields = self._store.read(names)
            (blob,) = self._store.blobs([self._name])
            if self._store.read(names) != fields:
                continue
            self._field = fields[self._name]
            numbers = read_or_refuse("hook", self._field or "0:0", _numbers)
            record = decoded(blob)
            self.position, self._changes = numbers or (0, 0)
            self.owed, self.told = record.owed, record.told
            goes_on = self._field is not None and numbers is not None and not self._is_behind(fields)
            if goes_on and record.is_whole:
                return
            position = self.position if goes_on else position_of(fields, SENT)
            refused = {} if blob is None or record.is_whole else {refused_blob(self._hook): blob}
            if self._begin(position, record, refused, fields, now_ms):
                return
        raise StateError(f"the hook {self._hook} could not begin in {_ATTEMPTS} attempts; is the store being wiped?")

    def _begin(
        self,
        position: int,
        record: HookRecord,
        refused: Mapping[str, bytes],
        fields: Mapping[str, str | None],
        now_ms: int,
    ) -> bool:
        """A hook that is new, was away too long, or whose position was refused, starts where the topic is; one of whose
        record something else was refused, goes on where it was. The topic goes on only behind it, so a new outbox is
        read from its start."""
        record = record._replace(owed=[one for one in record.owed if one.number < position])  # others come again
        events = kept(self._store, position, position_of(fields, PASSED))  # ends before that count as told
        missed, told = caught_up(record, events, self._tells)
        owed = [*record.owed, *(Owed(_NO_ENTRY, alert, now_ms) for alert in missed)]
        expect = {name: fields[name] for name in (SENT, DROPPED, PASSED)}
        return self._write(position, owed, told, expect=expect, blobs=refused)

    def take(
        self,
        alerts: Sequence[Alert | None],
        acknowledged: Acknowledged,
        now_ms: int,
    ) -> bool:
        """Takes the next entries of the outbox over (None: one that was refused); whether there is something to be told
        among them."""
        if not alerts:
            return False
        known = self.told.keys() | {owed.alert.dedup_key for owed in self.owed}
        taken = [
            Owed(number, alert, now_ms)
            for number, alert in enumerate(alerts, self.position)
            if alert is not None
            and not acknowledged.mutes(number, alert)
            and (self._tells(alert) or (alert.state == "close" and alert.dedup_key in known))
        ]
        owed, given_up = bounded([*self.owed, *taken])
        lost = self._records(given_up, "too_many", f"more than {MOST_OWED} were waiting", now_ms)
        fault_points.before("hooks.take")
        written = self._write(self.position + len(alerts), owed, self.told, lost)
        fault_points.after("hooks.take")
        return written and bool(taken)

    def telling(self, events: Collection[Owed]) -> bool:
        """The hook is about to be told of them. From here on it may know of them, whatever is heard of it; False where
        another process was first, and so it must not be told now."""
        told = {owed.alert.dedup_key: 0 for owed in events if owed.alert.state != "close"} | self.told
        if told == self.told:
            return self._field is not None
        fault_points.before("hooks.tell")
        written = self._write(self.position, self.owed, told)
        fault_points.after("hooks.tell")
        return written

    def delivered(self, events: Collection[Owed]) -> bool:
        """The hook has been told of them."""
        fault_points.before("hooks.told")
        written = self._write(self.position, self._without(events), self._told_after(events))
        fault_points.after("hooks.told")
        return written

    def failed(self, events: Collection[Owed], give_up_before_ms: int, detail: str, now_ms: int) -> None:
        """An attempt to tell of them failed. Alerts of which an event had failed by `give_up_before_ms` are given up,
        but for the end of one: what the receiver may hold to be open would stay so."""
        tried = {o.key for o in events}
        owed = [replace(o, failed_ms=now_ms) if o.key in tried and o.failed_ms is None else o for o in self.owed]
        old = {o.alert.dedup_key for o in owed if o.failed_ms is not None and o.failed_ms <= give_up_before_ms}
        last = {o.alert.dedup_key: o for o in owed}
        ends = {o.key for o in last.values() if o.alert.state == "close"}
        over = [o for o in owed if o.alert.dedup_key in old and o.key not in ends]
        if owed == self.owed and not over:
            return
        gone = {o.key for o in over}
        self._write(
            self.position,
            [o for o in owed if o.key not in gone],
            self.told,
            self._records(over, "too_old", detail, now_ms),
        )

    def rejected(self, events: Collection[Owed], detail: str, now_ms: int) -> None:
        """The receiver will never take them, so it does not know of what opened with them."""
        ours = {o.key for o in self.owed}
        events = [o for o in events if o.key in ours]
        unknown = {o.alert.dedup_key for o in events if o.alert.state != "update"}
        told = {key: time_ms for key, time_ms in self.told.items() if key not in unknown}
        records = self._records(events, "rejected", detail, now_ms)
        self._write(self.position, self._without(events), told, records)

    def told_of_acknowledgement(self, dedup_key: str, time_ms: int) -> None:
        """The hook knows that somebody has acknowledged the alert, at that time."""
        if dedup_key in self.told:
            self._write(self.position, self.owed, {**self.told, dedup_key: time_ms})

    def pass_over(self, events: Collection[Owed]) -> None:
        """Nobody needs to be told of them any more."""
        self._write(self.position, self._without(events), self.told)

    def owe_again(
        self, alerts: Sequence[Alert], now_ms: int, expect: Mapping[str, str | None], marks: Mapping[str, str]
    ) -> bool:
        """Owes it these before all others, in place of what it is owed of the same alerts: a message on its way that
        has come takes none of them off. An end among them is told through silences too, as the hook may know of what
        opened before it. `expect`: of the outbox's fields; `marks`: fields to be set in the same commit. False where
        another process was first."""
        keys = {alert.dedup_key for alert in alerts}
        number = min((one.number for one in self.owed), default=0)
        again = [Owed(min(number, 0) - 1, alert, now_ms) for alert in alerts]
        owed, given_up = bounded([*again, *(one for one in self.owed if one.alert.dedup_key not in keys)])
        lost = self._records(given_up, "too_many", f"more than {MOST_OWED} were waiting", now_ms)
        told = {alert.dedup_key: 0 for alert in alerts if alert.state == "close"} | self.told
        return self._write(self.position, owed, told, lost, expect, marks)

    def _without(self, events: Collection[Owed]) -> list[Owed]:
        gone = {o.key for o in events}
        return [o for o in self.owed if o.key not in gone]

    def _told_after(self, events: Collection[Owed]) -> dict[str, int]:
        """What the hook knows to be open once it knows of the events."""
        told = dict(self.told)
        for alert in (owed.alert for owed in events):
            if alert.state == "open":
                told[alert.dedup_key] = 0
            elif alert.state == "update":
                told.setdefault(alert.dedup_key, 0)
            else:
                told.pop(alert.dedup_key, None)
        return told

    def _records(self, events: Collection[Owed], reason: GivenUpReason, detail: str, now_ms: int) -> list[GivenUp]:
        return [GivenUp(self._hook, reason, detail, now_ms, owed.alert.model_dump(mode="json")) for owed in events]

    def _write(
        self,
        position: int,
        owed: list[Owed],
        told: Mapping[str, int],
        given_up: Sequence[GivenUp] = (),
        expect: Mapping[str, str | None] | None = None,
        marks: Mapping[str, str] | None = None,
        blobs: Mapping[str, bytes] | None = None,
    ) -> bool:
        """One commit; False where another process was first. `expect`: what else it was made from, of a ledger that
        begins always; `marks`, `blobs`: further fields and blobs."""
        if self._field is None and expect is None:
            return False  # what another process has put there is not known: nothing may be written over it
        field = f"{position}:{self._changes + 1}"
        change = Commit(
            expect={self._name: self._field, **(expect or {})},
            fields={self._name: field, **(marks or {})},
            appends={GIVEN_UP: [msgspec.json.encode(record) for record in given_up]} if given_up else {},
            blobs={**({self._name: encoded(owed, told)} if owed or told else {}), **(blobs or {})},
            deletes=() if owed or told else (self._name,),
        )
        if not self._store.commit(change):
            self._field = None
            return False
        self._field, self.position, self.owed, self.told = field, position, owed, dict(told)
        self._changes += 1
        self._tell_of(given_up)
        return True

    def _tell_of(self, given_up: Sequence[GivenUp]) -> None:
        for record in given_up:
            metrics.ALERTS_GIVEN_UP.labels(self._hook, record.reason).inc()
            _LOG.error(
                "hook %s will not be told that alert %s of %s/%s is %s: %s",
                self._hook,
                record.alert["kind"],
                record.alert["model"],
                record.alert["model_version"],
                record.alert["state"],
                record.detail,
                extra={"hook": self._hook, "alert": record.alert["kind"]},
            )
        if given_up:
            kept = self._store.length(GIVEN_UP) - _GIVEN_UP_KEPT
            if kept > 0:
                self._store.commit(Commit(trims={GIVEN_UP: kept}))


def _numbers(field: str) -> tuple[int, int]:
    """Position, and changes so far. Raises StateError where the field does not hold them."""
    position, _, changes = field.partition(":")
    if not (position.isdecimal() and changes.isdecimal()):
        raise StateError(f"the hook's position is {field!r}, and no two numbers")
    return int(position), int(changes)
