"""Attributes derived from time: hour of the day and day of the week, in a named zone.

They are functions of an event's pane, so that cells, which know the pane, have them without being cut any finer. A
value is that of the pane's start; panes and zone must divide so that it holds for the whole pane. (Where a zone's
clocks change inside a pane, as St. John's did at 00:01 until 2011, the pane keeps the value of its start.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.groups import Signature
from stream_calib.errors import ConfigurationError

_HOUR_MS = 3_600_000
HOUR_OF_DAY, DAY_OF_WEEK = "hour_of_day", "day_of_week"
DERIVED_ATTRIBUTES = (HOUR_OF_DAY, DAY_OF_WEEK)
"""Values: "00" .. "23", and "monday" .. "sunday"."""
_LENGTH_MS = {HOUR_OF_DAY: _HOUR_MS, DAY_OF_WEEK: 24 * _HOUR_MS}
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

_FIRST_DAY, _DAYS_LOOKED_AT = datetime(2000, 1, 1, tzinfo=timezone.utc), 36_525
"""The times that events may have: 2000 to 2100."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_PANES_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class TimeAttributes:
    """Derived attributes of panes. `names`: of DERIVED_ATTRIBUTES, each once; `zone`: a name of the time-zone database;
    `pane_ms`: length of the panes, which are numbered from the epoch.

    Raises ConfigurationError for an unknown name or zone, and where panes and zone do not divide: the unit (an hour, a
    day) must be a whole number of panes, and so must every distance of the zone from UTC between 2000 and 2100. So
    Asia/Kolkata (+05:30) needs panes of 30 minutes or a divisor of it.
    """

    names: tuple[str, ...]
    zone: str
    pane_ms: int

    def __post_init__(self) -> None:
        for name in self.names:
            if name not in DERIVED_ATTRIBUTES or self.names.count(name) > 1:
                raise ConfigurationError(
                    f"derived attributes {list(self.names)}: use each of {', '.join(DERIVED_ATTRIBUTES)} at most once"
                )
            if _LENGTH_MS[name] % self.pane_ms:
                unit = "an hour" if name == HOUR_OF_DAY else "a day"
                raise ConfigurationError(
                    f"{name} needs panes of which {unit} is a whole number; they have {self.pane_ms} ms"
                )
        for offset_ms in _utc_offsets_ms(self.zone):
            if offset_ms % self.pane_ms:
                raise ConfigurationError(
                    f"in {self.zone} the clocks are {offset_ms / _HOUR_MS:+g} h from UTC, which is no whole number"
                    f" of panes of {self.pane_ms / _HOUR_MS:g} h; take a shorter pane or another zone"
                )

    def of_pane(self, pane: int) -> tuple[str, ...]:
        """The values, in the order of `names`."""
        return _values(self.names, self.zone, pane * self.pane_ms)

    def extend(
        self, signature_index: NDArray[np.intp], signatures: Sequence[Signature], pane: NDArray[np.int64]
    ) -> tuple[NDArray[np.intp], list[Signature]]:
        """Signatures with the derived values at the end: (n,) index, and the distinct ones.

        `signature_index` (n,): place of each row in `signatures`; `pane` (n,): the row's pane.
        """
        distinct, place = np.unique(pane, return_inverse=True)
        by_pane = [self.of_pane(number) for number in distinct.tolist()]
        # Panes a day or a week apart have the same values.
        number = {values: i for i, values in enumerate(dict.fromkeys(by_pane))}
        derived = list(number)
        of_pane = np.array([number[values] for values in by_pane], dtype=np.intp)
        pairs = signature_index * max(len(derived), 1) + of_pane[place.reshape(-1)]
        if len(derived) == 1:
            return pairs, [(*signature, *derived[0]) for signature in signatures]
        used, index = np.unique(pairs, return_inverse=True)
        extended = [(*signatures[i // len(derived)], *derived[i % len(derived)]) for i in used.tolist()]
        return index.reshape(-1).astype(np.intp), extended


@lru_cache(maxsize=_PANES_KEPT)
def _values(names: tuple[str, ...], zone: str, start_ms: int) -> tuple[str, ...]:
    local = (_EPOCH + timedelta(milliseconds=start_ms)).astimezone(ZoneInfo(zone))
    values = {HOUR_OF_DAY: f"{local.hour:02d}", DAY_OF_WEEK: _DAYS[local.weekday()]}
    return tuple(values[name] for name in names)


@lru_cache(maxsize=16)
def _utc_offsets_ms(zone: str) -> tuple[int, ...]:
    """Every distance from UTC that the zone has at noon of a day on which events may be, milliseconds, sorted."""
    try:
        place = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, OSError, ValueError) as error:
        raise ConfigurationError(
            f"time zone {zone!r} is not in the time-zone database; use a name as America/New_York or UTC"
        ) from error
    noon = _FIRST_DAY + timedelta(hours=12)
    found = {(noon + timedelta(days=day)).astimezone(place).utcoffset() for day in range(_DAYS_LOOKED_AT)}
    return tuple(sorted(int(offset.total_seconds() * 1000) for offset in found if offset is not None))
