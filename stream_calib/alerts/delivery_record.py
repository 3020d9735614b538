"""The record of what a hook is owed of an outbox, and of what it will not be told: how it is kept and bounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from stream_calib.alerts.model import Alert
from stream_calib.alerts.position import position_of
from stream_calib.alerts.refusal import read_or_refuse, refuse
from stream_calib.windows.state_store import StateStore

GIVEN_UP = "given_up"
MOST_OWED = 500
"""Events that a hook may be owed of one outbox. Beyond it only the last event of each alert stays, and of these the
newest."""

GivenUpReason: TypeAlias = Literal["rejected", "too_old", "too_many"]


@dataclass(frozen=True, slots=True)
class Owed:
    """An event that the hook is to be told of."""

    number: int
    """Of the entry in the outbox; below 0: it was missed when the hook began, or it is owed again."""
    alert: Alert
    taken_ms: int
    """Wall time at which it was taken over."""
    failed_ms: int | None = None
    """Wall time of the first attempt that failed."""

    @property
    def key(self) -> tuple[int, str]:
        """Tells it from all others of its ledger, also when that is read anew."""
        return self.number, self.alert.id


class GivenUp(msgspec.Struct, frozen=True):
    """An event that the hook will not be told of."""

    hook: str
    reason: GivenUpReason
    detail: str
    """What the receiver said last."""
    time_ms: int
    """Wall time."""
    alert: dict[str, Any]


_GIVEN_UP = msgspec.json.Decoder(GivenUp)


class HookRecord(NamedTuple):
    """What of a hook's record can be read."""

    owed: list[Owed]
    """Oldest first."""
    told: dict[str, int]
    """See Ledger.told."""
    is_owed_known: bool
    """Whether `owed` has all of its events."""
    is_told_known: bool
    """Whether `told` has all of its alerts."""
    is_whole: bool
    """Whether nothing was refused."""


_Row: TypeAlias = tuple[int, int, int | None, msgspec.Raw]
"""As Owed: number, taken_ms, failed_ms, alert."""


class _Document(msgspec.Struct, frozen=True):
    owed: list[_Row]
    told: dict[str, int]


_OBJECT, _LIST = msgspec.json.Decoder(dict[str, msgspec.Raw]), msgspec.json.Decoder(list[msgspec.Raw])
_ROW, _TIME = msgspec.json.Decoder(_Row), msgspec.json.Decoder(int)
_ABSENT = msgspec.Raw(b"null")


def field_of(hook: str) -> str:
    """Name of the field with the hook's position."""
    return f"hook:{hook}"


def refused_blob(hook: str) -> str:
    """Name of the blob with the hook's record as it was when something of it was refused last."""
    return f"refused:{field_of(hook)}"


def redelivered_field(hook: str) -> str:
    """Name of the field with the number of the first entry of GIVEN_UP that was not owed to the hook again."""
    return f"redelivered:{hook}"


def record_of(store: StateStore, hook: str) -> HookRecord:
    """What is on record of the hook, as far as it can be read."""
    return decoded(*store.blobs([field_of(hook)]))


def owed_of(store: StateStore, hook: str) -> list[Owed]:
    """What the hook is owed of the outbox, oldest first; as far as it is on record and can be read."""
    return record_of(store, hook).owed


def given_up_of(store: StateStore) -> tuple[int, list[GivenUp]]:
    """How many events were given up in all, and the newest of them, oldest first, without those that were owed
    again."""
    end = store.length(GIVEN_UP)
    entries = store.entries(GIVEN_UP, 0, end)
    found: list[tuple[int, GivenUp]] = []
    for number, entry in enumerate(entries, end - len(entries)):
        if (record := read_or_refuse("given_up", entry, _GIVEN_UP.decode)) is not None:
            found.append((number, record))
    if not found:
        return end, []
    fields = store.read([redelivered_field(hook) for hook in sorted({record.hook for _, record in found})])
    return end, [r for number, r in found if number >= position_of(fields, redelivered_field(r.hook))]


def bounded(owed: list[Owed]) -> tuple[list[Owed], list[Owed]]:
    """What stays, and what does not. See MOST_OWED."""
    if len(owed) <= MOST_OWED:
        return owed, []
    last = {o.alert.dedup_key: o for o in owed}
    stays = {o.key for o in [o for o in owed if last[o.alert.dedup_key] is o][-MOST_OWED:]}
    return [o for o in owed if o.key in stays], [o for o in owed if o.key not in stays]


def encoded(owed: Sequence[Owed], told: Mapping[str, int]) -> bytes:
    """The record's bytes. `told`: see Ledger.told."""
    rows = [(o.number, o.taken_ms, o.failed_ms, msgspec.Raw(o.alert.encode())) for o in owed]
    return msgspec.json.encode(_Document(rows, dict(sorted(told.items()))))


def decoded(blob: bytes | None) -> HookRecord:
    """What the record's bytes hold, item by item: each that cannot be read is refused alone."""
    if blob is None:
        return HookRecord([], {}, True, True, True)
    members = read_or_refuse("hook", blob, _OBJECT.decode)
    if members is None:
        return HookRecord([], {}, False, False, False)
    rows = read_or_refuse("hook", bytes(members.pop("owed", _ABSENT)), _LIST.decode)
    times = read_or_refuse("hook", bytes(members.pop("told", _ABSENT)), _OBJECT.decode)
    for name, raw in members.items():
        refuse("hook", f"{name}: {bytes(raw)!r}", "this version does not know what that says")
    owed = [read_or_refuse("hook", bytes(raw), _owed) for raw in rows or ()]
    told = {key: read_or_refuse("hook", bytes(raw), _TIME.decode) for key, raw in (times or {}).items()}
    is_owed_known, is_told_known = rows is not None and None not in owed, times is not None
    return HookRecord(
        [one for one in owed if one is not None],
        {key: time_ms or 0 for key, time_ms in told.items()},
        is_owed_known,
        is_told_known,
        is_owed_known and is_told_known and None not in told.values() and not members,
    )


def _owed(row: bytes) -> Owed:
    number, taken_ms, failed_ms, alert = _ROW.decode(row)
    return Owed(number, Alert.decode(bytes(alert)), taken_ms, failed_ms)
