"""ISO 8601 and numeric event times."""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_calib.events.event_times import iso8601_ms, read_times

HOUR = 3_600_000


def utc_ms(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=timezone.utc).timestamp()) * 1_000  # type: ignore[arg-type,misc]  # year first


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-05-01T10:00:00Z", utc_ms(2024, 5, 1, 10)),
        ("2024-05-01T10:00:00", utc_ms(2024, 5, 1, 10)),
        ("2024-05-01 10:00:00", utc_ms(2024, 5, 1, 10)),
        ("2024-05-01t10:00:00z", utc_ms(2024, 5, 1, 10)),
        ("2024-05-01T10:00", utc_ms(2024, 5, 1, 10)),
        ("2024-05-01T10:00+02:00", utc_ms(2024, 5, 1, 8)),
        ("2024-05-01T10:00:00+0000", utc_ms(2024, 5, 1, 10)),
        ("2024-05-01T10:00:00+00:00", utc_ms(2024, 5, 1, 10)),
        ("2024-05-01T10:00:00-00:00", utc_ms(2024, 5, 1, 10)),
        ("2024-05-01T10:00:00+02", utc_ms(2024, 5, 1, 8)),
        ("2024-05-01T10:00:00-0330", utc_ms(2024, 5, 1, 13, 30)),
        ("2024-05-01", utc_ms(2024, 5, 1)),
        ("2024-02-29", utc_ms(2024, 2, 29)),
        ("2024-05-01T10:00:00.1Z", utc_ms(2024, 5, 1, 10) + 100),
        ("2024-05-01T10:00:00,12Z", utc_ms(2024, 5, 1, 10) + 120),
        ("2024-05-01T10:00:00.123Z", utc_ms(2024, 5, 1, 10) + 123),
        ("2024-05-01T10:00:00.1239999999999Z", utc_ms(2024, 5, 1, 10) + 123),
        ("2024-05-01T10:00:00." + "9" * 300, utc_ms(2024, 5, 1, 10) + 999),
        ("1969-12-31T23:59:59.999Z", -1),
    ],
)
def test_reads(text: str, expected: int) -> None:
    assert iso8601_ms(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "2024", "2024-05", "2024-5-1", "20240501", "2024-02-30", "2023-02-29", "2024-13-01", "0000-01-01",
        "2024-05-01T",
        "2024-05-01T10", "2024-05-01T24:00:00", "2024-05-01T10:60:00", "2024-05-01T23:59:60Z", "2024-05-01T10:00:00.",
        "2024-05-01T10:00:00+24:00", "2024-05-01T10:00:00+2:00", "2024-05-01Z", " 2024-05-01", "2024-05-01\n",
        "2024-05-01T10:00:00Z\n", "٢٠٢٤-05-01", "1714557600000", "2024-05-01T10:00:00 UTC", "now",
    ],
)  # fmt: skip
def test_refuses(text: str) -> None:
    assert iso8601_ms(text) is None


@given(st.datetimes(min_value=datetime(2000, 1, 1), max_value=datetime(2099, 12, 31)), st.integers(-14 * 60, 14 * 60))
def test_agrees_with_the_calendar(local: datetime, offset_minutes: int) -> None:
    zone = timezone(timedelta(minutes=offset_minutes))
    moment = local.replace(tzinfo=zone)

    expected = (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)

    assert iso8601_ms(moment.isoformat(timespec="microseconds")) == expected


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_the_hour_of_an_event_does_not_depend_on_the_host(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "TZ", zone)
    time.tzset()
    texts = [
        "2024-11-03T10:59:59.999Z",
        "2024-11-03T11:00:00.000Z",
        "2024-11-03T13:00:00+02:00",
        "2024-11-03T01:30:00-04:00",
        "2024-11-03T01:30:00-05:00",
        "2024-11-03T01:30:00",
    ]
    try:
        times, failures = read_times(texts, "iso8601", "ts")
    finally:
        monkeypatch.undo()
        time.tzset()

    assert failures == {}
    assert (times // HOUR % 24).tolist() == [10, 11, 11, 5, 6, 1]


@given(st.integers(946_684_800_000, 4_102_444_799_999))
def test_all_units_read_one_moment_alike(moment_ms: int) -> None:
    values = [
        (moment_ms, "ms"),
        (float(moment_ms), "ms"),
        (moment_ms * 1_000, "us"),
        (moment_ms * 1_000 + 999, "us"),
        (float(f"{moment_ms // 1_000}.{moment_ms % 1_000:03d}"), "s"),
        (
            datetime.fromtimestamp(moment_ms // 1_000, timezone.utc).isoformat()[:19] + f".{moment_ms % 1_000:03d}Z",
            "iso8601",
        ),
    ]

    for value, unit in values:
        times, failures = read_times([value], unit, "ts")  # type: ignore[arg-type]  # the list's type is wider
        assert failures == {}
        assert times.tolist() == [moment_ms], (value, unit)


def test_integers_and_floats_of_one_column_do_not_disturb_each_other() -> None:
    times, failures = read_times([1_714_557_600_123, 1_714_557_600_123.9, True, 1_714_557_600_124], "ms", "ts")

    assert list(failures) == [2]
    assert times[[0, 1, 3]].tolist() == [1_714_557_600_123, 1_714_557_600_123, 1_714_557_600_124]
    assert times.dtype == np.int64
