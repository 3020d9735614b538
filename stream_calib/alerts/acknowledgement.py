"""Acknowledgements: somebody knows of an alert, and wants no more news of this opening but that it closes or gets
worse.

A field of the outbox's state holds them. Whoever delivers drops one when the alert closes, or opens again, behind the
event at which it was acknowledged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from stream_calib.alerts.model import Alert, Severity
from stream_calib.alerts.refusal import read_or_refuse
from stream_calib.alerts.severity import RANK
from stream_calib.errors import StateError
from stream_calib.windows.state_store import Commit, StateStore

FIELD = "acknowledged"
_ATTEMPTS = 100


class Acknowledgement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one opening of an alert."""

    number: int
    """It holds for events of the outbox from this number on."""
    severity: Severity
    """That it was given for; of worse there is news again."""
    alert: msgspec.Raw
    """The last event then."""
    time_ms: int
    """Wall time."""
    actor: str
    reason: str


class _Stored(msgspec.Struct, frozen=True):
    next: int
    by_key: dict[str, msgspec.Raw]


_STORED = msgspec.json.Decoder(_Stored)


def _decoded(raw: bytes) -> Acknowledgement:
    found = msgspec.json.decode(raw, type=Acknowledgement)
    Alert.decode(bytes(found.alert))
    return found


class Acknowledged(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of one outbox."""

    next: int = 0
    """Events before this number can end none of them."""
    by_key: dict[str, Acknowledgement] = {}
    """Deduplication key -> acknowledgement."""

    @classmethod
    def decode(cls, field: str | None) -> Acknowledged:
        """What the field holds. One that cannot be read is refused, and counts as not given."""
        if not field:
            return cls()
        stored = read_or_refuse("acknowledgement", field, _STORED.decode)
        if stored is None:
            return cls()
        read = {key: read_or_refuse("acknowledgement", bytes(raw), _decoded) for key, raw in stored.by_key.items()}
        return cls(stored.next, {key: found for key, found in read.items() if found is not None})

    def encode(self) -> str:
        """Empty where there are none."""
        return msgspec.json.encode(self).decode() if self.by_key else ""

    def mutes(self, number: int, alert: Alert) -> bool:
        """Whether the event, of that number in the outbox, is news that nobody wants."""
        found = self.by_key.get(alert.dedup_key)
        return (
            found is not None
            and alert.state == "update"
            and number >= found.number
            and RANK[alert.severity] <= RANK[found.severity]
        )

    def after(self, start: int, alerts: Sequence[Alert | None]) -> Acknowledged:
        """What is left of them behind the events that begin with number `start`."""
        ended = {
            alert.dedup_key
            for number, alert in enumerate(alerts, start)
            if alert is not None
            and alert.state != "update"
            and (found := self.by_key.get(alert.dedup_key)) is not None
            and number >= found.number
        }
        left = {key: found for key, found in self.by_key.items() if key not in ended}
        return Acknowledged(start + len(alerts), left)


def acknowledge(state: StateStore, alert: Alert, number: int, actor: str, reason: str, now_ms: int) -> None:
    """Puts it on record for the alert as it is open now. `number`: of the outbox's next event, read before the alert
    was looked at."""
    mine = Acknowledgement(number, alert.severity, msgspec.Raw(alert.encode()), now_ms, actor, reason)
    for _ in range(_ATTEMPTS):
        field = state.read([FIELD])[FIELD]
        found = Acknowledged.decode(field)
        before = min(found.next, number) if found.by_key else number
        wanted = Acknowledged(before, {**found.by_key, alert.dedup_key: mine})
        if state.commit(Commit({FIELD: field}, {FIELD: wanted.encode()})):
            return
    raise StateError(f"an acknowledgement could not be written in {_ATTEMPTS} attempts; is the store being wiped?")


def acknowledged(state: StateStore) -> Mapping[str, Acknowledgement]:
    """Deduplication key -> acknowledgement, of alerts that are open."""
    return Acknowledged.decode(state.read([FIELD])[FIELD]).by_key
