"""When an alert of a condition opens, is updated and closes: not at the first look that is bad, nor at the first good
one.

A condition is `bad` beyond the threshold at which its alert opens, `fine` below another one, well apart, and `between`
otherwise. It must have been bad at every look of a time before the alert opens, and fine likewise before it closes.
The clock comes in with each look.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from stream_calib.alerts.model import AlertState
from stream_calib.alerts.severity import LOG_LEVEL
from stream_calib.alerts.standing import StandingAlert, Told, hash_of, told_of
from stream_calib.windows.state_store import Commit, StateStore

_LOG = logging.getLogger(__name__)

Level: TypeAlias = Literal["bad", "between", "fine"]


@dataclass(frozen=True, slots=True)
class Seen:
    """A condition at one look."""

    level: Level
    since_ms: int
    """Event time, epoch milliseconds, since when it is bad. Only of one that is bad."""
    diagnosis: str
    """What is wrong and what to do; of one that is fine: that it is over, and why."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """Plain values."""
    news: str = ""
    """What people must hear of when it becomes another one while the alert is open; "" where there is no such thing."""


def level_of(value: float, opens_at: float, closes_below: float) -> Level:
    """Bad from `opens_at` on, fine below `closes_below`, which must not be above it."""
    return "bad" if value >= opens_at else "fine" if value < closes_below else "between"


def switched_off(setting: str, now_ms: int) -> Seen:
    """Of a condition that the configuration has taken out: an alert of it that is open still must not stay so."""
    text = f'alerts.conditions.{setting} is off, or serving.clock_records is not "wall": nobody looks at it any more'
    return Seen("fine", now_ms, text)


@dataclass(frozen=True, slots=True)
class Steadiness:
    """For how long (milliseconds of wall time) a condition must be bad, or fine, or have other news, before that is
    told."""

    open_ms: int
    close_ms: int
    update_ms: int


AT_ONCE = Steadiness(0, 0, 0)


class Watch:
    """One condition, as one process has seen it so far."""

    def __init__(self, steadiness: Steadiness) -> None:
        self._steadiness = steadiness
        self._held: tuple[str, str] = ("between", "")
        """Level and news of the last look."""
        self._level_since_ms = self._news_since_ms = 0

    def due(self, seen: Seen, told: Told, now_ms: int) -> AlertState | None:
        """What is to be told now, of an alert of which `told` was told last; None: nothing."""
        level, news = self._held
        # A clock that was set back: what has held for long must not have to hold for as long again, and more.
        self._level_since_ms = min(self._level_since_ms, now_ms)
        self._news_since_ms = min(self._news_since_ms, now_ms)
        if seen.level != level:
            self._level_since_ms = now_ms
        if seen.level != level or seen.news != news:
            self._news_since_ms = now_ms
        self._held = seen.level, seen.news
        held_ms = now_ms - self._level_since_ms
        if told.since_ms is None:
            return "open" if seen.level == "bad" and held_ms >= self._steadiness.open_ms else None
        if seen.level == "fine":
            return "close" if held_ms >= self._steadiness.close_ms else None
        if seen.level == "bad" and seen.news and told.news != hash_of(seen.news):
            return "update" if now_ms - self._news_since_ms >= self._steadiness.update_ms else None
        return None


class ConditionAlert:
    """The alert of one condition, as one process sees it. Several may look at the same: what is told is in a field of
    the state, and the first one that sees a change writes it."""

    def __init__(self, field: str, alert: StandingAlert, steadiness: Steadiness) -> None:
        self.field = field
        """The state's field of the alert, to be read before each look."""
        self._alert, self._watch = alert, Watch(steadiness)

    def look(self, state: StateStore, found: Mapping[str, str | None], seen: Seen, now_ms: int) -> None:
        """Opens, updates or closes the alert where that is due. `found`: what must not have changed since it was read,
        `field` among it. Raises StateUnavailableError."""
        told = told_of(found[self.field])
        due = self._watch.due(seen, told, now_ms)
        if due is None:
            return
        after, alert = self._alert.event(told, due, seen.since_ms, seen.diagnosis, seen.evidence, seen.news)
        if state.commit(Commit(found, {self.field: after}, {"outbox": [alert.encode()]})):
            _LOG.log(
                logging.INFO if due == "close" else LOG_LEVEL[alert.severity],
                "%s/%s: %s",
                alert.model,
                alert.model_version,
                alert.diagnosis,
                extra={"model": f"{alert.model}/{alert.model_version}", "alert": alert.kind},
            )
