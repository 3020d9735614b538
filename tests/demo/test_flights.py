"""The shipped flights data is the published data, event for event."""

import hashlib
import itertools
from collections.abc import Iterable

import msgspec
import numpy as np
import pytest

from stream_calib.demo.flights import DAY_MS, Flights, load_flights

# sha256 over the events as JSON lines, made from the original tables with the standard library's json module.
SCORES_SHA256 = "8f5b8ecd76b0265d80416e41ba195912aee22911649d62d74582615b07d40508"
LABELS_SHA256 = "595c7ef778a36ec2c7cdaa48178ea8411547bf560eb083f404a99a2581e7cebc"


@pytest.fixture(scope="module")
def flights() -> Flights:
    return load_flights()


def sha256_of_lines(events: Iterable[bytes]) -> tuple[int, str]:
    state, count = hashlib.sha256(), 0
    for event in events:
        state.update(event + b"\n")
        count += 1
    return count, state.hexdigest()


def test_score_events_are_the_published_ones(flights: Flights) -> None:
    assert sha256_of_lines(flights.score_events()) == (284_821, SCORES_SHA256)


def test_label_events_are_the_published_ones(flights: Flights) -> None:
    assert sha256_of_lines(flights.label_events()) == (277_337, LABELS_SHA256)


def test_days_cut_the_events_without_a_gap(flights: Flights) -> None:
    days = flights.days()

    assert [d.scores.start for d in days] == [0, *(d.scores.stop for d in days[:-1])]
    assert [d.labels.start for d in days] == [0, *(d.labels.stop for d in days[:-1])]
    assert (days[-1].scores.stop, days[-1].labels.stop) == (284_821, 277_337)
    assert days[0].start_ms == 1_362_132_000_000  # 2013-03-01T10:00Z, the first score
    assert {b.start_ms - a.start_ms for a, b in itertools.pairwise(days)} == {DAY_MS}
    for day in days:
        for times in (flights.score_time_ms[day.scores], flights.label_time_ms[day.labels]):
            assert np.all((times >= day.start_ms) & (times < day.start_ms + DAY_MS))


def test_a_part_of_the_events_is_the_same_part_of_all_events(flights: Flights) -> None:
    day = flights.days()[3]

    events = [msgspec.json.decode(event) for event in flights.score_events(day.scores)]

    assert [e["event_id"] for e in events] == flights.event_id[day.scores]
    assert [e["ts"] for e in events] == flights.score_time_ms[day.scores].tolist()
    first = next(flights.label_events(slice(5, 6)))
    assert msgspec.json.decode(first)["event_id"] == flights.event_id[flights.label_row[5]]


def test_hours_are_the_same_days_in_24_pieces(flights: Flights) -> None:
    days, hours = flights.days(), flights.periods(DAY_MS // 24)

    assert len(hours) == 24 * len(days)
    assert [h.end_ms for h in hours[:-1]] == [h.start_ms for h in hours[1:]]
    for i, day in enumerate(days):
        first, last = hours[24 * i], hours[24 * i + 23]
        assert (first.start_ms, last.end_ms) == (day.start_ms, day.end_ms)
        assert (first.scores.start, last.scores.stop) == (day.scores.start, day.scores.stop)
        assert (first.labels.start, last.labels.stop) == (day.labels.start, day.labels.stop)
