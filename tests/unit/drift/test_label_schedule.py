"""When labels are due, by schedule, zone and grace."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_calib.config_records import LabelsSection
from stream_calib.drift.label_schedule import LabelSchedule
from stream_calib.errors import ConfigurationError

HOUR_MS, DAY_MS = 3_600_000, 86_400_000


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000)


def utc(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, timezone.utc).isoformat(timespec="minutes")[:16]


@pytest.mark.parametrize(
    ("entries", "zone", "now", "due"),
    [
        (["mon-fri 06:00"], "UTC", "2024-11-04T06:59", "2024-11-01T06:00"),  # a Monday within the grace: Friday's
        (["mon-fri 06:00"], "UTC", "2024-11-04T07:00", "2024-11-04T06:00"),
        (["mon-fri 06:00"], "UTC", "2024-11-03T12:00", "2024-11-01T06:00"),  # nothing is due on Sunday
        (["06:00", "18:00"], "UTC", "2024-11-03T19:30", "2024-11-03T18:00"),
        (["fri-mon 06:00"], "UTC", "2024-11-05T12:00", "2024-11-04T06:00"),  # over the end of the week
        (["sun 06:00"], "UTC", "2024-11-10T06:30", "2024-11-03T06:00"),  # a week ago, today's is within the grace
        (["mon,wed 23:30"], "Asia/Kolkata", "2024-11-04T20:00", "2024-11-04T18:00"),
        (["06:00"], "America/New_York", "2024-11-02T12:00", "2024-11-02T10:00"),  # summer time
        (["06:00"], "America/New_York", "2024-11-03T12:30", "2024-11-03T11:00"),  # the clock went back that night
        (["02:30"], "America/New_York", "2024-03-10T09:00", "2024-03-10T07:30"),  # skipped that night: an hour later
        (["01:30"], "America/New_York", "2024-11-03T08:00", "2024-11-03T05:30"),  # comes twice: the first time
    ],
)
def test_the_newest_load_that_had_to_be_there(entries: list[str], zone: str, now: str, due: str) -> None:
    schedule = LabelSchedule.parse(entries, zone, HOUR_MS)
    now_ms = ms(now + "+00:00")
    assert utc(schedule.due_ms(now_ms)) == due
    assert schedule.must_have_come_since_ms(now_ms) == schedule.due_ms(now_ms) - HOUR_MS


@pytest.mark.parametrize(
    ("entries", "hours"),
    [
        ([], 0),
        (["06:00"], 24 + 2),
        (["mon-fri 06:00"], 72 + 2),
        (["sun 23:30"], 168 + 2),
        (["mon-fri 06:00", "fri 18:00", "sun 12:00"], 42 + 2),
    ],
)
def test_the_longest_silence_that_is_none_to_worry_about(entries: list[str], hours: int) -> None:
    assert LabelSchedule.parse(entries, "UTC", 2 * 3_600_000).longest_silence_ms() == hours * 3_600_000


def test_without_a_schedule_labels_are_due_all_the_time() -> None:
    schedule = LabelSchedule.parse([], "UTC", HOUR_MS)
    assert schedule.due_ms(10 * HOUR_MS) == schedule.must_have_come_since_ms(10 * HOUR_MS) == 9 * HOUR_MS


@given(
    st.lists(st.tuples(st.sets(st.integers(0, 6), min_size=1), st.integers(0, 23), st.integers(0, 59)), min_size=1),
    st.sampled_from(["UTC", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"]),
    st.integers(ms("2023-01-01T00:00+00:00"), ms("2026-01-01T00:00+00:00")),
    st.integers(0, 3 * DAY_MS),
)
def test_what_was_due_only_goes_forward_and_is_never_over_a_week_ago(
    times: list[tuple[set[int], int, int]], zone: str, now_ms: int, later_ms: int
) -> None:
    names = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
    entries = [f"{','.join(names[d] for d in sorted(days))} {hour:02d}:{minute:02d}" for days, hour, minute in times]
    schedule = LabelSchedule.parse(entries, zone, 0)
    due = schedule.due_ms(now_ms)
    # A week of a zone whose clock goes back is an hour longer.
    assert now_ms - 7 * DAY_MS - HOUR_MS <= due <= now_ms
    assert due <= schedule.due_ms(now_ms + later_ms)
    assert schedule.due_ms(due) == due


@pytest.mark.parametrize(
    "entry",
    ["6:00", "24:00", "06:60", "monday 06:00", "mon- 06:00", "mon,, 06:00", "mon-fri", "", "06:00 mon", "Mon 06:00"],
)
def test_what_is_no_weekly_time_is_refused(entry: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^labels\.schedule: {re.escape(repr(entry))} is no weekly time; "):
        LabelSchedule.parse([entry], "UTC", 0)


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"labels\.schedule_zone: 'Mars/Olympus' is not in the time-zone"):
        LabelSchedule.parse(["06:00"], "Mars/Olympus", 0)


def test_the_configuration_refuses_them_too() -> None:
    with pytest.raises(ValueError, match="'noon' is no weekly time"):
        LabelsSection(schedule=["noon"])
    section = LabelsSection.model_validate({"schedule": ["sat 06:00"], "schedule_grace": "2h"})
    assert section.when_due().grace_ms == 2 * HOUR_MS
    assert timedelta(milliseconds=section.when_due().grace_ms) == timedelta(hours=2)
