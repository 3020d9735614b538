"""A small stream, by its seed: five hours of scores and labels over a few partitions, in slices of fifteen minutes,
with everything in it that happens to real ones.

Scores: repeated, with another score, late, refused, tombstones, with attributes missing. Labels: corrected, withdrawn
(null and tombstone), before their score, beyond the horizon, without a score, late, refused.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from typing import Any

from stream_calib.transport.port import Outgoing

MINUTE_MS = 60_000
PANE_MS = 10 * MINUTE_MS
HORIZON_MS = 60 * MINUTE_MS
SCORE_LATENESS_MS = 2 * MINUTE_MS
LABEL_LATENESS_MS = 10 * MINUTE_MS

BEGIN_MS = 1_704_067_200_000
"""A whole day, so also a whole pane."""
SLICES = 20
SLICE_MS = 15 * MINUTE_MS
_SCORES = 1_200
_SHIFT_MS = SLICES // 2 * SLICE_MS
"""From here on scores are higher, so that there is something to be alerted and refitted for."""


def slices(seed: int) -> list[list[Outgoing]]:
    """The records of each slice, in the order in which they are written, without clock records."""
    found: list[list[tuple[int, Outgoing]]] = [[] for _ in range(SLICES)]
    for emit_ms, record in _events(random.Random(seed)):
        at = (emit_ms - BEGIN_MS) // SLICE_MS
        if at < SLICES:
            found[at].append((emit_ms, record))
    return [[record for _, record in sorted(some, key=lambda one: one[0])] for some in found]


def slice_end_ms(number: int) -> int:
    """Where the clocks stand when the slice has been written."""
    return BEGIN_MS + (number + 1) * SLICE_MS


def _events(random_: random.Random) -> Iterator[tuple[int, Outgoing]]:
    carriers, origins, destinations = ("UA", "AA", "B6", "DL"), ("EWR", "JFK", "LGA"), ("LAX", "SFO", "MIA", "ORD")
    for n in range(_SCORES):
        time_ms = BEGIN_MS + SLICES * SLICE_MS * n // _SCORES + random_.randrange(MINUTE_MS)
        event: dict[str, Any] = {
            "event_id": f"e-{n}",
            "ts": time_ms,
            "carrier": random_.choice(carriers),
            "origin": random_.choice(origins),
            "dest": random_.choice(destinations),
        }
        shifted = time_ms - BEGIN_MS >= _SHIFT_MS
        log_odds = random_.gauss(1.5 if shifted else -1.0, 1.2)
        true_odds = 0.7 * log_odds + (0.8 if event["carrier"] == "UA" else -0.3) - (1.0 if shifted else 0.0)
        event["score"] = _probability(log_odds)
        label = int(random_.random() < _probability(true_odds))
        yield from _scores(event, random_)
        yield from _labels(event, label, random_)


def _probability(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))


def _record(topic: str, emit_ms: int, event: dict[str, Any] | None, key: str) -> tuple[int, Outgoing]:
    return emit_ms, Outgoing(topic, key.encode(), None if event is None else json.dumps(event).encode())


def _scores(event: dict[str, Any], random_: random.Random) -> Iterator[tuple[int, Outgoing]]:
    key, ts, other, luck = event["event_id"], event["ts"], random_.random(), random_.random()

    def score(emit_ms: int = ts, **changes: Any) -> tuple[int, Outgoing]:
        return _record("scores", emit_ms, event | changes, key)

    yield score() if random_.random() > 0.03 else score(carrier=None)
    if luck < 0.03:
        yield score()
    elif luck < 0.05:
        yield score(ts, score=other)
    elif luck < 0.07:
        yield score(ts + MINUTE_MS, ts=ts + MINUTE_MS, score=other)
    elif luck < 0.09:
        yield score(ts + 4 * PANE_MS, ts=ts + 4 * PANE_MS, score=other)
    elif luck < 0.11:
        yield score(ts + SLICE_MS + 5 * MINUTE_MS, score=other)  # late: the slice before has moved the clocks
    elif luck < 0.12:
        yield score(score=random_.choice([1.5, None, "0.5"]))
    elif luck < 0.13:
        yield _record("scores", ts, None, key)
    elif luck < 0.14:
        yield score(score=random_.choice([0, 1]), event_id=f"{key}-x")


def _labels(event: dict[str, Any], label: int, random_: random.Random) -> Iterator[tuple[int, Outgoing]]:
    key, ts = event["event_id"], event["ts"] + random_.randrange(MINUTE_MS, HORIZON_MS * 9 // 10)
    luck = random_.random()

    def dated(time_ms: int, emit_ms: int | None = None, value: Any = label, name: str = key) -> tuple[int, Outgoing]:
        emit = time_ms if emit_ms is None else emit_ms
        return _record("labels", emit, {"event_id": name, "ts": time_ms, "label": value}, key)

    if luck < 0.10:
        return  # never labelled
    yield dated(ts)
    if luck < 0.12:
        yield dated(ts)
    elif luck < 0.14:
        yield dated(ts + 1, value=1 - label)
    elif luck < 0.15:
        yield dated(ts, value=1 - label)
    elif luck < 0.17:
        yield dated(ts + MINUTE_MS, value=None)
    elif luck < 0.18:
        yield _record("labels", ts + 2 * MINUTE_MS, None, key)
    elif luck < 0.20:
        yield dated(event["ts"] - MINUTE_MS)
    elif luck < 0.22:
        yield dated(event["ts"] + HORIZON_MS + PANE_MS)
    elif luck < 0.24:
        yield dated(ts, name=f"{key}-unknown")
    elif luck < 0.26:
        yield dated(ts, ts + SLICE_MS + 15 * MINUTE_MS, value=1 - label)  # late, as above
    elif luck < 0.27:
        yield dated(ts, value="perhaps")
