"""Windows cut in local time put rows into the wrong hour around a change of the clocks, or moved every later one; and
nobody could say to which of two windows a row on their border belongs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.events.event_times import iso8601_ms
from stream_calib.windows.cells import ScoredCells
from stream_calib.windows.pane_record import PaneNames
from tests.cases.joined import joined
from tests.windows.monitors import A

HOUR_MS = 3_600_000
EVENTS = [
    "2024-11-02T10:59:59.999Z",
    "2024-11-02T11:00:00.000Z",
    "2024-11-02T13:00:00+02:00",
    "2024-11-03T01:30:00-04:00",
    "2024-11-03T01:30:00-05:00",
]
HOURS = {
    "2024-11-02T10Z": 1,
    "2024-11-02T11Z": 2,
    "2024-11-03T05Z": 1,
    "2024-11-03T06Z": 1,
}
HOURLY: dict[str, Any] = {
    "windows": {"pane": "1h", "horizon": "2h"},
    "drift": {"psi_window": "1h"},
    "refit": {"gate_window": "1h"},
    "scores": {"time": {"path": "t", "unit": "iso8601"}},
}


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kolkata"])
def host_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The host's own zone."""
    with monkeypatch.context() as zone:
        zone.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


@pytest.mark.services
def test_each_event_is_in_the_one_hour_of_utc_wherever_the_host_is(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, host_in: str
) -> None:
    with joined(redis_url, monkeypatch, **HOURLY) as j:
        j.scores(*({"event_id": str(i), "score": 0.5, "t": text} for i, text in enumerate(EVENTS)))
        j.clocks(None)
        j.monitors.start()
        last = int(datetime(2024, 11, 3, 6, tzinfo=timezone.utc).timestamp() * 1_000) // HOUR_MS
        j.monitors.until(lambda: j.monitors.cursor(A, "closed") >= last, "the hours to close")
        first = j.monitors.cursor(A, "first_pane")
        found = {}
        for pane in range(first, last + 1):
            (blob,) = j.monitors.state(A).store.blobs([PaneNames.of(pane).scored])
            assert blob is not None
            if rows := int(ScoredCells.unpack(blob).n.sum()):
                start = datetime.fromtimestamp(pane * HOUR_MS / 1_000, timezone.utc)
                found[start.strftime("%Y-%m-%dT%HZ")] = rows
        assert found == HOURS


@given(
    st.datetimes(datetime(2000, 1, 2), datetime(2099, 12, 30)),
    st.integers(-14 * 60, 14 * 60).map(lambda minutes: timedelta(minutes=minutes)),
)
@settings(max_examples=100)
def test_a_time_is_the_same_in_every_zone_that_it_is_written_in(moment: datetime, offset: timedelta) -> None:
    utc = moment.replace(microsecond=moment.microsecond // 1_000 * 1_000, tzinfo=timezone.utc)
    expected = (utc - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)
    assert iso8601_ms(utc.astimezone(timezone(offset)).isoformat()) == expected
    assert iso8601_ms(utc.replace(tzinfo=None).isoformat()) == expected


def test_a_pane_begins_with_its_first_millisecond() -> None:
    times = [iso8601_ms(text) for text in EVENTS[:3]]
    assert [None if t is None else t // HOUR_MS % 24 for t in times] == [10, 11, 11]
