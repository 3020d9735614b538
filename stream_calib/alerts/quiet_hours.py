"""When people want to be told of the worst only: a daily span on the wall clock of a named zone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from stream_calib.alerts.model import Severity
from stream_calib.alerts.severity import RANK
from stream_calib.errors import ConfigurationError

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIME = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]")
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From `start` on some weekdays (0 is Monday) until `end`, on the next day where that is not later."""

    start: time
    end: time
    zone: str
    days: frozenset[int]
    severity: Severity
    """From here on alerts are told all the same."""

    @classmethod
    def parse(cls, start: str, end: str, zone: str, days: Sequence[str], severity: Severity) -> QuietHours:
        """`start`, `end`: as "22:00"; `days`: of DAYS, none: every day. Raises ConfigurationError."""
        for what, text in (("start", start), ("end", end)):
            if not _TIME.fullmatch(text):
                raise ConfigurationError(f'quiet_hours.{what}: {text!r} is no time of day; write "00:00" to "23:59"')
        if unknown := next((day for day in days if day not in DAYS), None):
            raise ConfigurationError(f"quiet_hours.days: {unknown!r} is no day; they are {', '.join(DAYS)}")
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, OSError, ValueError) as error:
            raise ConfigurationError(
                f"quiet_hours.zone: {zone!r} is not in the time-zone database; use a name as America/New_York or UTC"
            ) from error
        chosen = frozenset(DAYS.index(day) for day in days or DAYS)
        return cls(time.fromisoformat(start), time.fromisoformat(end), zone, chosen, severity)

    def hold(self, severity: Severity, now_ms: int) -> bool:
        """Whether an alert of the severity waits now, epoch milliseconds. The wall clock of the zone counts, so a
        change of the clocks makes the span an hour longer or shorter."""
        if RANK[severity] >= RANK[self.severity]:
            return False
        local = datetime.fromtimestamp(now_ms / 1000, ZoneInfo(self.zone))
        at, today, yesterday = local.time(), local.weekday(), (local - _DAY).weekday()
        if self.start < self.end:
            return today in self.days and self.start <= at < self.end
        return (today in self.days and at >= self.start) or (yesterday in self.days and at < self.end)
