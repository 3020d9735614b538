from __future__ import annotations

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_calib.calibration.time_attributes import DERIVED_ATTRIBUTES, TimeAttributes
from stream_calib.errors import ConfigurationError

HOUR, MINUTE = 3_600_000, 60_000
BOTH = ("hour_of_day", "day_of_week")


def pane_of(text: str, pane_ms: int = HOUR) -> int:
    """The pane of a time in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp() * 1000) // pane_ms


def test_the_values_of_a_pane() -> None:
    assert TimeAttributes(BOTH, "UTC", HOUR).of_pane(0) == ("00", "thursday")
    assert TimeAttributes(BOTH, "America/New_York", HOUR).of_pane(0) == ("19", "wednesday")
    assert TimeAttributes(BOTH[::-1], "UTC", HOUR).of_pane(pane_of("2013-03-01T17:00")) == ("friday", "17")
    assert TimeAttributes((), "UTC", HOUR).of_pane(0) == ()


def test_the_clock_goes_forward_and_back() -> None:
    """New York, 10 March 2013: after 01:00 EST comes 03:00 EDT; 3 November: 01:00 twice."""
    there = TimeAttributes(("hour_of_day",), "America/New_York", HOUR)
    spring = [there.of_pane(pane_of(f"2013-03-10T{h:02d}:00"))[0] for h in range(5, 9)]
    autumn = [there.of_pane(pane_of(f"2013-11-03T{h:02d}:00"))[0] for h in range(4, 8)]
    assert spring == ["00", "01", "03", "04"]
    assert autumn == ["00", "01", "01", "02"]


def test_a_day_begins_at_the_zones_midnight() -> None:
    days = TimeAttributes(("day_of_week",), "Asia/Kolkata", 30 * MINUTE)
    assert days.of_pane(pane_of("2013-03-01T18:00", 30 * MINUTE)) == ("friday",)
    assert days.of_pane(pane_of("2013-03-01T18:30", 30 * MINUTE)) == ("saturday",)


@pytest.mark.parametrize(
    ("zone", "longest_minutes"),
    [
        ("UTC", 60),
        ("America/New_York", 60),
        ("Asia/Kolkata", 30),
        ("Asia/Kathmandu", 15),
        ("Australia/Lord_Howe", 30),  # summer time of half an hour
        ("America/St_Johns", 30),
    ],
)
def test_the_longest_pane_of_a_zone(zone: str, longest_minutes: int) -> None:
    for minutes in (60, 30, 20, 15, 12, 10, 7, 6, 5, 4, 3, 2, 1):
        if longest_minutes % minutes == 0:
            TimeAttributes(BOTH, zone, minutes * MINUTE)
        else:
            with pytest.raises(ConfigurationError, match="whole number"):
                TimeAttributes(BOTH, zone, minutes * MINUTE)


@given(st.sampled_from(["America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"]), st.integers(0, 2_500_000))
def test_the_values_hold_for_the_whole_pane(zone: str, number: int) -> None:
    """Panes of 30 minutes from 2000 on: every minute in them has the values of the start."""
    pane_ms = 30 * MINUTE
    pane = pane_of("2000-01-01T00:00", pane_ms) + number % (2100 - 2000) * 17_532 + number // 100
    values = TimeAttributes(BOTH, zone, pane_ms).of_pane(pane)
    for minute in range(30):
        at = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=pane * pane_ms, minutes=minute)
        local = at.astimezone(ZoneInfo(zone))
        assert values == (f"{local.hour:02d}", local.strftime("%A").lower())


def test_panes_and_zone_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"Asia/Kolkata the clocks are \+5.5 h from UTC.* panes of 1 h"):
        TimeAttributes(("hour_of_day",), "Asia/Kolkata", HOUR)
    with pytest.raises(ConfigurationError, match="hour_of_day needs panes of which an hour is a whole number"):
        TimeAttributes(("hour_of_day",), "UTC", 2 * HOUR)
    with pytest.raises(ConfigurationError, match=r"New_York the clocks are -5 h from UTC.* panes of 24 h"):
        TimeAttributes(("day_of_week",), "America/New_York", 24 * HOUR)
    with pytest.raises(ConfigurationError, match="day_of_week needs panes of which a day"):
        TimeAttributes(("day_of_week",), "UTC", 7 * 24 * HOUR)
    TimeAttributes(("day_of_week",), "UTC", 24 * HOUR)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../etc/passwd", "Europe"])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(ConfigurationError, match="not in the time-zone database"):
        TimeAttributes(("hour_of_day",), zone, HOUR)


@pytest.mark.parametrize("names", [("month",), ("hour_of_day", "hour_of_day")])
def test_unknown_or_repeated_attributes_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError, match="hour_of_day, day_of_week at most once"):
        TimeAttributes(names, "UTC", HOUR)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(380_000, 380_400)), max_size=40))
def test_extended_signatures_are_those_of_each_row(rows: list[tuple[int, int]]) -> None:
    derived = TimeAttributes(DERIVED_ATTRIBUTES, "America/New_York", HOUR)
    signatures = [("UA", "EWR"), ("VX", "JFK"), ("B6", "LGA")]
    index = np.array([i for i, _ in rows], dtype=np.intp)
    pane = np.array([p for _, p in rows], dtype=np.int64)
    place, extended = derived.extend(index, signatures, pane)
    assert [extended[i] for i in place.tolist()] == [signatures[i] + derived.of_pane(p) for i, p in rows]
    assert len(set(extended)) == len(extended)


def test_panes_with_equal_values_share_their_signatures() -> None:
    derived = TimeAttributes(("hour_of_day",), "UTC", HOUR)
    place, extended = derived.extend(np.zeros(48, np.intp), [("UA",)], np.arange(48, dtype=np.int64))
    assert len(extended) == 24
    assert (place[:24] == place[24:]).all()
