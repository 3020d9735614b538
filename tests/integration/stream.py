"""The flights as a stream with everything in it that happens to real ones, seeded.

Scores: repeated, with another score, again hours later, too late. Labels: corrected, withdrawn (null and tombstone),
unmatched (no such id, beyond the horizon, from before the stream began), too late.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stream_calib.demo.flights import DAY_MS, Flights, load_flights
from stream_calib.transport.port import Outgoing

MINUTE_MS, HOUR_MS = 60_000, 3_600_000


class Event(NamedTuple):
    """One record and the time at which the source writes it."""

    emit_ms: int
    topic: str
    key: bytes
    value: bytes | None


@dataclass
class EventDay:
    """What the source writes in one day, in order."""

    start_ms: int
    events: list[Event] = field(default_factory=list)

    @property
    def end_ms(self) -> int:
        return self.start_ms + DAY_MS


def flight_days(days: int, seed: int = 1) -> list[EventDay]:
    """The first so many days of the flights, with the oddities above in about one event of ten.

    Every event is written at its time but the late ones, which come at the end of a day: late by the clock of every
    partition, however the topics are partitioned.
    """
    flights, random_ = load_flights(), random.Random(seed)
    used = flights.days()[:days]
    result = [EventDay(day.start_ms) for day in used]
    first_ms, end_ms = used[0].start_ms, used[-1].start_ms + DAY_MS
    for event in _events(flights, used[-1].scores.stop, used[-1].labels.stop, random_, end_ms):
        result[(event.emit_ms - first_ms) // DAY_MS].events.append(event)
    # Outcomes of what was scored before the stream began: they are of panes that it does not have.
    early = ({"event_id": f"early-{i}", "ts": first_ms - (i + 1) * HOUR_MS // 4, "label": i % 2} for i in range(40))
    result[0].events += [_label(event, first_ms) for event in early]
    for day in result:
        day.events.sort(key=lambda event: event.emit_ms)
    return result


def _events(flights: Flights, scores: int, labels: int, random_: random.Random, end_ms: int) -> Iterator[Event]:
    for raw in flights.score_events(slice(0, scores)):
        event: dict[str, Any] = json.loads(raw)
        yield from _capped(_score_and_oddities(event, random_), end_ms)
    for raw in flights.label_events(slice(0, labels)):
        event = json.loads(raw)
        yield from _capped(_label_and_oddities(event, random_), end_ms)


def _capped(events: Iterator[Event], end_ms: int) -> Iterator[Event]:
    """Without what would come after the last day."""
    return (event for event in events if event.emit_ms < end_ms)


def _score(event: dict[str, Any], emit_ms: int | None = None, **changes: Any) -> Event:
    changed = event | changes
    emit_ms = changed["ts"] if emit_ms is None else emit_ms
    return Event(emit_ms, "scores", changed["event_id"].encode(), json.dumps(changed).encode())


def _label(event: dict[str, Any], emit_ms: int | None = None, **changes: Any) -> Event:
    changed = event | changes
    emit_ms = changed["ts"] if emit_ms is None else emit_ms
    return Event(emit_ms, "labels", changed["event_id"].encode(), json.dumps(changed).encode())


def _end_of_day(time_ms: int) -> int:
    """The last minute of the day that the time belongs to (days begin at 10:00 UTC)."""
    return time_ms - (time_ms - 10 * HOUR_MS) % DAY_MS + DAY_MS - MINUTE_MS


def _score_and_oddities(event: dict[str, Any], random_: random.Random) -> Iterator[Event]:
    yield _score(event)
    luck, ts, other = random_.random(), event["ts"], random_.random()
    if luck < 0.02:
        yield _score(event)
    elif luck < 0.03:
        yield _score(event, score=other)
    elif luck < 0.04:
        yield _score(event, ts=ts + MINUTE_MS, score=other)
    elif luck < 0.05:
        yield _score(event, ts=ts + 3 * HOUR_MS, score=other)
    elif luck < 0.06 and _end_of_day(ts) - ts > 12 * HOUR_MS:
        yield _score(event, _end_of_day(ts), score=other)
    elif luck < 0.07:
        yield _score(event, event_id=f"{event['event_id']}-x", carrier=None, score=random_.choice([0.0, 1.0]))


def _label_and_oddities(event: dict[str, Any], random_: random.Random) -> Iterator[Event]:
    yield _label(event)
    luck, ts = random_.random(), event["ts"]
    if luck < 0.02:
        yield _label(event)
    elif luck < 0.03:
        yield _label(event, ts=ts + MINUTE_MS, label=1 - event["label"])
    elif luck < 0.04:
        yield _label(event, label=1 - event["label"])
    elif luck < 0.05:
        yield _label(event, ts=ts + HOUR_MS, label=None)
    elif luck < 0.06:
        yield Event(ts + 2 * HOUR_MS, "labels", event["event_id"].encode(), None)
    elif luck < 0.07:
        yield _label(event, ts=ts + 30 * HOUR_MS)
    elif luck < 0.08:
        yield _label(event, event_id=f"{event['event_id']}-unknown")
    elif luck < 0.09 and _end_of_day(ts) - ts > 12 * HOUR_MS:
        yield _label(event, _end_of_day(ts), label=1 - event["label"])


def as_written(days: Sequence[EventDay]) -> Iterator[list[Outgoing]]:
    """Each day's records as the demo partitions them: by key."""
    for day in days:
        yield [Outgoing(event.topic, event.key, event.value) for event in day.events]


def otherwise(days: Sequence[EventDay], label_partitions: int, seed: int = 2) -> list[Outgoing]:
    """The same events with labels over other partitions, both topics reordered within their lateness, and every
    score written twice."""
    random_ = random.Random(seed)
    moved: list[tuple[float, Outgoing]] = []
    for event in (event for day in days for event in day.events):
        if event.topic == "scores":
            # Late ones stay late: reordering moves a record back by less than the lateness.
            emit = event.emit_ms + random_.random() * 4 * MINUTE_MS
            again = event.emit_ms + random_.random() * 4 * MINUTE_MS
            record = Outgoing("scores", event.key, event.value)
            moved += [(emit, record), (again, record)]
        else:
            partition = zlib.crc32(event.key[::-1]) % label_partitions
            # A tombstone is dated by its partition's clock, so it must not come before the label that it withdraws.
            emit = event.emit_ms + random_.random() * 50 * MINUTE_MS
            moved.append((emit, Outgoing("labels", event.key, event.value, (), partition)))
    moved.sort(key=lambda one: one[0])
    return [record for _, record in moved]


def last_pane(days: Sequence[EventDay], pane_ms: int = HOUR_MS) -> int:
    """The last pane with a score."""
    values = (event.value or b"" for day in days for event in day.events if event.topic == "scores")
    return max(int(json.loads(value)["ts"]) for value in values) // pane_ms
