"""Event times to epoch milliseconds, in the one configured unit; nothing is guessed from the size of a number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stream_calib.events.columns import ABSENT, Failures, number_column
from stream_calib.events.contracts import MAX_EVENT_TIME_MS, MIN_EVENT_TIME_MS, RejectReason
from stream_calib.events.messages import shown
from stream_calib.transport.port import Record

TimeUnit = Literal["ms", "s", "us", "iso8601"]

_MICROSECONDS: dict[TimeUnit, float] = {"us": 1.0, "ms": 1e3, "s": 1e6}
_OUT_OF_RANGE_US = 5e15
_DAY_MS = 86_400_000
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_ISO = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ]([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9])(?:[.,]([0-9]+))?)?"
    r"(?:[Zz]|([+-])([01][0-9]|2[0-3])(?::?([0-5][0-9]))?)?)?"
)


def read_times(values: Sequence[Any], unit: TimeUnit, path: str) -> tuple[NDArray[np.int64], Failures]:
    """Epoch milliseconds (n,) int64 (0 where refused), and what is refused.

    ``ms``, ``s``, ``us``: JSON numbers, integers or not, read to the microsecond (so 1714557600.123 seconds are 123 ms,
    though no float64 is exactly that) and cut to the millisecond. ``iso8601``: text, see `iso8601_ms`.
    """
    if unit == "iso8601":
        parsed = [iso8601_ms(value) if type(value) is str else None for value in values]
        bad = [i for i, ms in enumerate(parsed) if ms is None]
        times = np.array([ms or 0 for ms in parsed], dtype=np.int64)
    else:
        numbers, bad = number_column(values)
        times = milliseconds(numbers, unit)
    failures: Failures = {i: _refusal(values[i], unit, path) for i in bad}
    for i in _out_of_range(times):
        failures.setdefault(
            i,
            (
                RejectReason.TIME_OUT_OF_RANGE,
                f"{path} is {shown(values[i])}: as {unit} outside the years 2000-2099; is the configured unit right?",
            ),
        )
    return times, failures


def milliseconds(numbers: NDArray[np.float64], unit: TimeUnit) -> NDArray[np.int64]:
    """Epoch milliseconds (n,) int64 of numbers (n,) of the unit, which is not `iso8601`; what is not finite, negative
    or too far ahead becomes a time that is out of range."""
    with np.errstate(over="ignore"):
        microseconds = np.clip(np.nan_to_num(numbers) * _MICROSECONDS[unit], 0, _OUT_OF_RANGE_US)
    times: NDArray[np.int64] = np.rint(microseconds).astype(np.int64) // 1_000
    return times


def append_times(records: Sequence[Record]) -> tuple[NDArray[np.int64], Failures]:
    """The log's append times, for events without a time of their own; the same range holds."""
    times = np.array([record.append_time_ms for record in records], dtype=np.int64)
    why = "the log's append time is outside the years 2000-2099, and no event time is configured"
    return times, dict.fromkeys(_out_of_range(times), (RejectReason.TIME_OUT_OF_RANGE, why))


def _out_of_range(times_ms: NDArray[np.int64]) -> list[int]:
    bad: list[int] = np.flatnonzero((times_ms < MIN_EVENT_TIME_MS) | (times_ms >= MAX_EVENT_TIME_MS)).tolist()
    return bad


def iso8601_ms(text: str) -> int | None:
    """Epoch milliseconds of an ISO 8601 date or date and time, None where it is none.

    ``2024-05-01``, ``2024-05-01T10:00``, ``2024-05-01 10:00:00.123456789+02:00``: a ``T`` or a blank between; seconds
    may be left out; any number of fractional digits, cut to the millisecond; zone ``Z``, ``+0200``, ``+02:00``,
    ``+02``, or none for UTC. A date alone is its midnight. Hour 24 and second 60 are refused. Not
    `datetime.fromisoformat`: what it reads differs between Python 3.10 and 3.11.
    """
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    day, hour, minute, second, fraction, sign, zone_hour, zone_minute = match.groups()
    midnight = _midnight_ms(day)
    if midnight is None or hour is None:
        return midnight
    ms = midnight + int(hour) * 3_600_000 + int(minute) * 60_000
    if second is not None:
        ms += int(second) * 1_000
    if fraction is not None:
        ms += int(fraction[:3].ljust(3, "0"))
    if sign is not None:
        offset = int(zone_hour) * 3_600_000 + int(zone_minute or 0) * 60_000
        ms += offset if sign == "-" else -offset
    return ms


@lru_cache(maxsize=4_096)
def _midnight_ms(day: str) -> int | None:
    try:
        return (date(int(day[:4]), int(day[5:7]), int(day[8:])).toordinal() - _EPOCH_ORDINAL) * _DAY_MS
    except ValueError:
        return None  # 30 February


def _refusal(value: Any, unit: TimeUnit, path: str) -> tuple[RejectReason, str]:
    if value is ABSENT:
        return RejectReason.TIME_MISSING, f"{path} is missing; every record needs an event time"
    wanted = "ISO 8601 text" if unit == "iso8601" else f"a JSON number of {unit}"
    return RejectReason.TIME_INVALID, f"{path} is {shown(value)}; the configured unit {unit} needs {wanted}"
