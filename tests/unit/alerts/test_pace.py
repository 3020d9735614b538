"""Waits after failures, rate limits, quiet hours."""

from __future__ import annotations

import random
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_calib.alerts.delivery_pace import Backoff, TokenBucket
from stream_calib.alerts.model import Severity
from stream_calib.alerts.quiet_hours import QuietHours
from stream_calib.errors import ConfigurationError

MINUTE_MS = 60_000


class Largest(random.Random):
    """Always the longest wait."""

    def uniform(self, a: float, b: float) -> float:
        return b


def _waits(backoff: Backoff, failures: int) -> list[int]:
    """How long each is, milliseconds."""
    found, now = [], 0
    for _ in range(failures):
        backoff.failed(now, None)
        wait = next(ms for ms in range(0, 100_000, 500) if backoff.is_over(now + ms))
        found.append(wait)
        now += wait
    return found


def test_waits_double_up_to_the_longest_and_begin_anew_after_a_success() -> None:
    backoff = Backoff(Largest(), 60_000)
    assert _waits(backoff, 8) == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
    backoff.went_well()
    assert backoff.failures == 0
    assert _waits(backoff, 2) == [1_000, 2_000]


@given(seed=st.integers(0, 10_000), failures=st.integers(1, 2_000))
def test_jitter_is_full_and_bounded(seed: int, failures: int) -> None:
    backoff = Backoff(random.Random(seed), 60_000)
    for _ in range(failures):
        backoff.failed(0, None)
    assert backoff.is_over(60_000)


def test_what_the_receiver_asks_for_counts_but_not_for_ever() -> None:
    backoff = Backoff(Largest(), 60_000)
    backoff.failed(0, 300.0)
    assert not backoff.is_over(299_999)
    assert backoff.is_over(300_000)
    backoff.failed(0, 1e9)
    assert not backoff.is_over(86_399_999)
    assert backoff.is_over(86_400_000)


def test_a_clock_that_was_set_back_does_not_stop_it() -> None:
    backoff = Backoff(Largest(), 60_000)
    backoff.failed(10**12, None)
    assert not backoff.is_over(10**12)
    assert backoff.is_over(10**12 - 60_000)


@given(
    messages=st.integers(1, 50),
    per_ms=st.integers(1_000, 3_600_000),
    pauses=st.lists(st.integers(0, 600_000), max_size=200),
)
def test_no_more_than_so_many_messages_in_any_time(messages: int, per_ms: int, pauses: list[int]) -> None:
    bucket, now, sent = TokenBucket(messages, per_ms), 10**12, list[int]()
    for pause in pauses:
        now += pause
        if bucket.has_one(now):
            bucket.take()
            sent.append(now)
    for first, at in enumerate(sent):
        within = sum(at <= other < at + per_ms for other in sent[first:])
        assert within <= 2 * messages


def test_a_bucket_fills_again_one_by_one() -> None:
    bucket = TokenBucket(3, 30_000)
    for _ in range(3):
        assert bucket.has_one(0)
        bucket.take()
    assert not bucket.has_one(9_999)
    assert bucket.has_one(10_000)
    bucket.take()
    bucket.give_back()
    assert bucket.has_one(10_000)
    bucket.take()
    assert not bucket.has_one(10_000)
    assert bucket.has_one(10**9)


# --- quiet hours


def quiet(**changed: Any) -> QuietHours:
    return QuietHours.parse(**{**_NIGHT, **changed})


_NIGHT: dict[str, Any] = {
    "start": "22:00",
    "end": "07:00",
    "zone": "Europe/Berlin",
    "days": [],
    "severity": "critical",
}


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("when", "held"),
    [
        ("2025-01-10T21:59+01:00", False),
        ("2025-01-10T22:00+01:00", True),
        ("2025-01-11T00:00+01:00", True),
        ("2025-01-11T06:59+01:00", True),
        ("2025-01-11T07:00+01:00", False),
        # The clocks go forward, and back: the wall clock counts.
        ("2025-03-30T06:59+02:00", True),
        ("2025-03-30T07:00+02:00", False),
        ("2025-10-26T06:59+01:00", True),
        ("2025-10-26T07:00+01:00", False),
    ],
)
def test_quiet_hours_go_by_the_clock_on_the_wall(when: str, held: bool) -> None:
    assert quiet().hold("warning", at(when)) is held


@pytest.mark.parametrize(("severity", "held"), [("info", True), ("warning", False), ("critical", False)])
def test_what_is_bad_enough_is_told(severity: Severity, held: bool) -> None:
    assert quiet(severity="warning").hold(severity, at("2025-01-11T00:00+01:00")) is held


@pytest.mark.parametrize(
    ("when", "held"),
    [
        ("2025-01-10T23:00+01:00", True),  # Friday
        ("2025-01-11T06:00+01:00", True),
        ("2025-01-11T23:00+01:00", False),
        ("2025-01-10T06:00+01:00", False),
    ],
)
def test_days_are_those_on_which_they_begin(when: str, held: bool) -> None:
    assert quiet(days=["fri"]).hold("warning", at(when)) is held


@pytest.mark.parametrize(
    ("when", "held"),
    [
        ("2025-01-11T11:59+01:00", False),
        ("2025-01-11T12:00+01:00", True),
        ("2025-01-11T13:00+01:00", False),
        ("2025-01-12T12:30+01:00", False),
    ],
)
def test_hours_of_one_day(when: str, held: bool) -> None:
    assert quiet(start="12:00", end="13:00", days=["sat"]).hold("warning", at(when)) is held


def test_the_same_start_and_end_is_a_whole_day() -> None:
    whole = quiet(start="08:00", end="08:00", days=["sat"])
    times = ("2025-01-11T07:59+01:00", "2025-01-11T08:00+01:00", "2025-01-12T07:59+01:00", "2025-01-12T08:00+01:00")
    assert [whole.hold("info", at(when)) for when in times] == [False, True, True, False]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"start": "24:00"}, r"quiet_hours.start: '24:00' is no time of day; write \"00:00\" to \"23:59\""),
        ({"end": "7:00"}, r"quiet_hours.end: '7:00' is no time of day"),
        ({"days": ["monday"]}, r"quiet_hours.days: 'monday' is no day; they are mon, tue, wed, thu, fri, sat, sun"),
        ({"zone": "Berlin"}, r"quiet_hours.zone: 'Berlin' is not in the time-zone database"),
    ],
)
def test_quiet_hours_that_are_none_are_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        quiet(**changed)
