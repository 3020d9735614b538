"""When labels must have come: labels that are loaded in batches are silent most of the day, and that is no outage.

Pure; a schedule is a list of weekly times such as ``mon-fri 06:00``, on the wall clock of a named zone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from stream_calib.errors import ConfigurationError

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY = "|".join(_DAYS)
_ENTRY = re.compile(
    rf"(?:(?P<days>(?:{_DAY})(?:-(?:{_DAY}))?(?:,(?:{_DAY})(?:-(?:{_DAY}))?)*) )?"
    r"(?P<hour>[01][0-9]|2[0-3]):(?P<minute>[0-5][0-9])"
)
_WEEK_MINUTES = 7 * 24 * 60
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class WeeklyTime:
    """A time of day on some weekdays (0 is Monday)."""

    days: frozenset[int]
    at: time


@dataclass(frozen=True, slots=True)
class LabelSchedule:
    """`times` empty: labels come all the time."""

    times: tuple[WeeklyTime, ...]
    zone: str
    grace_ms: int

    @classmethod
    def parse(cls, entries: Sequence[str], zone: str, grace_ms: int) -> LabelSchedule:
        """Raises ConfigurationError where an entry is no weekly time, or the zone is unknown."""
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, OSError, ValueError) as error:
            raise ConfigurationError(
                f"labels.schedule_zone: {zone!r} is not in the time-zone database; use a name as America/New_York or"
                " UTC"
            ) from error
        return cls(tuple(_weekly_time(entry) for entry in entries), zone, grace_ms)

    def due_ms(self, now_ms: int) -> int:
        """The newest moment, epoch milliseconds, at which labels were due and the grace since has passed; without a
        schedule labels are due all the time."""
        latest = now_ms - self.grace_ms
        if not self.times:
            return latest
        return max(_last(weekly, ZoneInfo(self.zone), latest) for weekly in self.times)

    def longest_silence_ms(self) -> int:
        """The longest time for which nothing needs to come, the grace included; without a schedule 0. A change of the
        clocks may add its hour."""
        if not self.times:
            return 0
        minutes = sorted({day * 1440 + w.at.hour * 60 + w.at.minute for w in self.times for day in w.days})
        gaps = [later - earlier for earlier, later in pairwise([*minutes, minutes[0] + _WEEK_MINUTES])]
        return max(gaps) * 60_000 + self.grace_ms

    def must_have_come_since_ms(self, now_ms: int) -> int:
        """Labels must have come since this moment, epoch milliseconds; none since means an outage. A load may come
        early by the grace, as it may come late by it."""
        due_ms = self.due_ms(now_ms)
        return due_ms - self.grace_ms if self.times else due_ms


def _last(weekly: WeeklyTime, zone: ZoneInfo, latest_ms: int) -> int:
    """The last such time at or before `latest_ms`. One that a clock change skips counts an hour later, one that comes
    twice the first time."""
    today = (_EPOCH + timedelta(milliseconds=latest_ms)).astimezone(zone).date()
    # Beyond a week, because today's may still be to come.
    for back in range(-1, 8):
        day = today - timedelta(days=back)
        if day.weekday() not in weekly.days:
            continue
        at = datetime.combine(day, weekly.at, tzinfo=zone)
        at_ms = (at - _EPOCH) // timedelta(milliseconds=1)
        if at_ms <= latest_ms:
            return at_ms
    raise AssertionError(f"{weekly} does not come in any week")


def _weekly_time(entry: str) -> WeeklyTime:
    found = _ENTRY.fullmatch(entry)
    if found is None:
        raise ConfigurationError(
            f'labels.schedule: {entry!r} is no weekly time; write days and a time of day, as "mon-fri 06:00",'
            ' "sat,sun 07:30", or "06:00" for every day'
        )
    days: set[int] = set()
    for part in (found["days"] or "mon-sun").split(","):
        first, _, last = part.partition("-")
        start, length = _DAYS.index(first), 1
        if last:
            length = (_DAYS.index(last) - start) % 7 + 1
        days.update((start + i) % 7 for i in range(length))
    return WeeklyTime(frozenset(days), time(int(found["hour"]), int(found["minute"])))
