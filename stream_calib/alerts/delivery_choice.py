"""What a hook is told now, of all that it is owed: pure.

All events of one alert that wait are told together, in order, so what opened and closed while the hook was away is told
as both, and whatever follows alerts by their state ends in the right one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stream_calib.alerts.acknowledgement import Acknowledged
from stream_calib.alerts.delivery_ledger import Ledger
from stream_calib.alerts.delivery_record import Owed
from stream_calib.alerts.model import Alert
from stream_calib.alerts.quiet_hours import QuietHours
from stream_calib.alerts.severity import RANK
from stream_calib.alerts.silence import Silence, silence_of
from stream_calib.events.contracts import ModelKey

MOST_EVENTS = 100
"""Of one message; but those of one alert are told together, whatever their number."""


@dataclass(frozen=True, slots=True)
class News:
    """What a hook is owed of one alert."""

    outbox: ModelKey
    events: tuple[Owed, ...]
    """In their order, at least one."""

    @property
    def dedup_key(self) -> str:
        return self.events[0].alert.dedup_key


@dataclass(frozen=True, slots=True)
class Choice:
    """All that is owed, by what becomes of it."""

    due: list[News]
    held: list[News]
    """Until quiet hours or a silence end."""
    unwanted: list[News]
    """Opened and closed under a silence: nobody was told, and nobody has to be."""


def choose(
    ledgers: Mapping[ModelKey, Ledger],
    silences: Sequence[Silence],
    quiet_hours: Sequence[QuietHours],
    now_ms: int,
) -> Choice:
    """`ledgers`: of one hook, by the outbox. `silences`: those that have not ended. Each list has what waits longest
    first."""
    choice = Choice([], [], [])
    for outbox, ledger in ledgers.items():
        for news in _by_alert(outbox, ledger.owed):
            _place(news, ledger.told, silences, quiet_hours, now_ms, choice)
    for some in (choice.due, choice.held):
        some.sort(key=lambda news: news.events[0].taken_ms)
    return choice


def _by_alert(outbox: ModelKey, owed: Sequence[Owed]) -> list[News]:
    found: dict[str, list[Owed]] = {}
    for one in owed:
        found.setdefault(one.alert.dedup_key, []).append(one)
    return [News(outbox, tuple(events)) for events in found.values()]


def _place(
    news: News,
    told: Collection[str],
    silences: Sequence[Silence],
    quiet_hours: Sequence[QuietHours],
    now_ms: int,
    choice: Choice,
) -> None:
    last = news.events[-1].alert
    # The end of what the hook holds to be open is no noise, and is told through every silence.
    ends = news.dedup_key in told and any(o.alert.state == "close" for o in news.events)
    worst = max((o.alert.severity for o in news.events), key=RANK.__getitem__)
    if not ends and silence_of(last, silences) is not None:
        (choice.unwanted if last.state == "close" else choice.held).append(news)
    elif any(hours.hold(worst, now_ms) for hours in quiet_hours):
        choice.held.append(news)
    else:
        choice.due.append(news)


class Acknowledgement(NamedTuple):
    """That somebody has taken on an alert which the hook knows to be open."""

    outbox: ModelKey
    alert: Alert
    actor: str
    time_ms: int


def acknowledgements(
    ledgers: Mapping[ModelKey, Ledger],
    acknowledged: Mapping[ModelKey, Acknowledged],
    quiet_hours: Sequence[QuietHours],
    now_ms: int,
) -> list[Acknowledgement]:
    """Those that the hook is to be told of now; news of the alert itself goes before them."""
    found = []
    for outbox, ledger in ledgers.items():
        owed = {one.alert.dedup_key for one in ledger.owed}
        for dedup_key, given in acknowledged[outbox].by_key.items():
            is_news = ledger.told.get(dedup_key, given.time_ms) < given.time_ms and dedup_key not in owed
            if is_news and not any(hours.hold(given.severity, now_ms) for hours in quiet_hours):
                found.append(Acknowledgement(outbox, Alert.decode(bytes(given.alert)), given.actor, given.time_ms))
    return found


def together(due: Sequence[News]) -> list[News]:
    """The first of them that fit into one message; at least one."""
    taken, events = list(due[:1]), len(due[0].events)
    for news in due[1:]:
        events += len(news.events)
        if events > MOST_EVENTS:
            break
        taken.append(news)
    return taken
