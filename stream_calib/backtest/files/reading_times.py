"""ISO 8601 texts to epoch milliseconds, a column at a time.

Texts of the usual layouts are read by arithmetic on their bytes; all others one by one, by the function that defines
what a time is (`event_times.iso8601_ms`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_calib.events.event_times import iso8601_ms

NO_TIME = np.iinfo(np.int64).min
"""Stands for a text that is no time."""

_DATE_ALONE, _WITH_SECONDS, _LONGEST = len("2024-05-01"), len("2024-05-01T10:00:00"), 40
_DAY_MS = 86_400_000
_DAYS_BEFORE_EPOCH = 719_468
_MONTH_DAYS = np.array([0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


def iso_milliseconds(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n,) int64, NO_TIME where a text is no time. Text i is the UTF-8 bytes offsets[i] to offsets[i + 1] of `data`;
    `offsets` (n + 1,)."""
    starts, lengths = offsets[:-1], np.diff(offsets)
    found = np.full(len(starts), NO_TIME)
    for length in np.unique(lengths).tolist():
        if length != _DATE_ALONE and not _WITH_SECONDS <= length <= _LONGEST:
            continue
        rows = np.flatnonzero(lengths == length)
        if len(rows) == len(starts):
            texts = data[offsets[0] : offsets[-1]].reshape(len(rows), length)
        else:
            texts = data[starts[rows][:, None] + np.arange(length)]
        found[rows] = _of_one_length(texts)
    for i in np.flatnonzero(found == NO_TIME).tolist():
        ms = iso8601_ms(data[offsets[i] : offsets[i + 1]].tobytes().decode())
        found[i] = NO_TIME if ms is None else ms
    return found


def _of_one_length(texts: NDArray[np.uint8]) -> NDArray[np.int64]:
    """(k,) of texts (k, length); NO_TIME where the layout is another one, or it is no time."""
    length = texts.shape[1]
    if length == _DATE_ALONE:
        return _midnight_ms(texts)
    last = texts[:, -1]
    zulu = (last == ord("Z")) | (last == ord("z"))
    offset = np.zeros(len(texts), dtype=bool)
    if length >= _WITH_SECONDS + 6:
        sign = texts[:, -6]
        offset = ((sign == ord("+")) | (sign == ord("-"))) & (texts[:, -3] == ord(":"))
    found = np.full(len(texts), NO_TIME)
    for zone_length, chosen in ((0, ~zulu & ~offset), (1, zulu), (6, offset)):
        rows = np.flatnonzero(chosen)
        if len(rows) and length - zone_length >= _WITH_SECONDS:
            of_zone = texts if len(rows) == len(texts) else texts[rows]
            ms = _date_and_time_ms(of_zone[:, : length - zone_length])
            if zone_length == 6:
                ms = _less_offset(ms, of_zone[:, -6:])
            found[rows] = ms
    return found


def _date_and_time_ms(texts: NDArray[np.uint8]) -> NDArray[np.int64]:
    ms = _midnight_ms(texts)
    between = texts[:, 10]
    sound = (ms != NO_TIME) & ((between == ord("T")) | (between == ord("t")) | (between == ord(" ")))
    sound &= (texts[:, 13] == ord(":")) & (texts[:, 16] == ord(":"))
    hour, minute, second = (_number(texts[:, i : i + 2]) for i in (11, 14, 17))
    sound &= (hour >= 0) & (hour < 24) & (minute >= 0) & (minute < 60) & (second >= 0) & (second < 60)
    ms += hour * 3_600_000 + minute * 60_000 + second * 1_000
    digits = texts.shape[1] - _WITH_SECONDS - 1
    if digits >= 0:
        point = texts[:, _WITH_SECONDS]
        sound &= (point == ord(".")) | (point == ord(","))
        sound &= bool(digits)
        fraction = texts[:, _WITH_SECONDS + 1 :]
        sound &= ((fraction - ord("0")) < 10).all(axis=1)  # uint8: what is below "0" wraps around
        kept = min(digits, 3)
        ms += np.maximum(_number(fraction[:, :kept]), 0) * 10 ** (3 - kept)
    return np.where(sound, ms, NO_TIME)


def _less_offset(ms: NDArray[np.int64], zones: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Times (k,) of the zones (k, 6), as `+02:00`, in UTC."""
    hour, minute = _number(zones[:, 1:3]), _number(zones[:, 4:6])
    sound = (ms != NO_TIME) & (hour >= 0) & (hour < 24) & (minute >= 0) & (minute < 60)
    distance = hour * 3_600_000 + minute * 60_000
    return np.where(sound, ms - np.where(zones[:, 0] == ord("-"), -distance, distance), NO_TIME)


def _midnight_ms(texts: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Of the date that begins each text. Days from the civil date as in H. Hinnant, "chrono-Compatible Low-Level Date
    Algorithms" (2013): years begin in March, so that a leap day is the last one."""
    year, month, day = _number(texts[:, :4]), _number(texts[:, 5:7]), _number(texts[:, 8:10])
    sound = (texts[:, 4] == ord("-")) & (texts[:, 7] == ord("-")) & (year >= 1) & (month >= 1) & (month <= 12)
    month = np.where(sound, month, 1)
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    sound &= (day >= 1) & (day <= _MONTH_DAYS[month]) & (leap | (month != 2) | (day != 29))
    march_year = year - (month <= 2)
    era, of_era = march_year // 400, march_year % 400
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - _DAYS_BEFORE_EPOCH
    return np.where(sound, days * _DAY_MS, NO_TIME)


def _number(digits: NDArray[np.uint8]) -> NDArray[np.int64]:
    """(k,) int64 of decimal digits (k, d); negative where one is none."""
    value = np.zeros(len(digits), dtype=np.int64)
    for i in range(digits.shape[1]):
        digit = (digits[:, i] - ord("0")).astype(np.int64)  # uint8: what is below "0" wraps around
        value = value * 10 + np.where(digit < 10, digit, -1_000_000)
    return value
