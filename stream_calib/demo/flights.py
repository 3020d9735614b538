"""The flights year as score and label events (see data/README.md for its source and its file format)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from io import BytesIO
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

MINUTE_MS = 60_000
DAY_MS = 86_400_000
DAY_START_MS = 36_000_000
"""A day of the demo runs from 10:00 UTC to 10:00 UTC: New York sleeps between, so no flight is cut off from its day."""


class Period(NamedTuple):
    """The events of a stretch of event time, by their own times: start <= time < end."""

    start_ms: int
    """Epoch milliseconds."""
    end_ms: int
    scores: slice
    """Rows of the score events."""
    labels: slice
    """Rows of the label events; they are outcomes of this period's scores and of earlier ones."""


@dataclass(frozen=True, slots=True)
class Flights:
    """n score events and m label events as columns, each sorted by event time, then event id."""

    event_id: list[str]
    """n ids."""
    score_time_ms: NDArray[np.int64]
    """(n,) scheduled departure, epoch milliseconds UTC."""
    score: NDArray[np.float64]
    """(n,) raw probability that the flight arrives more than 15 minutes late."""
    carrier: NDArray[np.uint8]
    """(n,) index into `carriers`; `origin` and `dest` likewise."""
    origin: NDArray[np.uint8]
    dest: NDArray[np.uint8]
    carriers: tuple[str, ...]
    origins: tuple[str, ...]
    dests: tuple[str, ...]
    label_row: NDArray[np.intp]
    """(m,) row of the score event that the label is the outcome of."""
    label_time_ms: NDArray[np.int64]
    """(m,) actual arrival, epoch milliseconds UTC."""
    label: NDArray[np.int8]
    """(m,) 1: the flight arrived more than 15 minutes late, else 0."""

    def days(self) -> list[Period]:
        """All days, 10:00 to 10:00 UTC, in order; day 0 holds the first score, the last day the last event."""
        return self.periods(DAY_MS)

    def periods(self, length_ms: int) -> list[Period]:
        """The same days in shorter periods, of a length that divides a day."""
        first, last = day_index(self.score_time_ms[:1])[0], day_index(self.label_time_ms[-1:])[0]
        last = max(last, day_index(self.score_time_ms[-1:])[0])
        starts = np.arange(first * DAY_MS, (last + 1) * DAY_MS + 1, length_ms) + DAY_START_MS
        scores = np.searchsorted(self.score_time_ms, starts).tolist()
        labels = np.searchsorted(self.label_time_ms, starts).tolist()
        return [
            Period(start, end, slice(s0, s1), slice(l0, l1))
            for (start, end), (s0, s1), (l0, l1) in zip(*map(pairwise, (starts.tolist(), scores, labels)), strict=True)
        ]

    def score_events(self, rows: slice = slice(None)) -> Iterator[bytes]:
        """The score events of the rows as JSON: `{"event_id","ts","score","carrier","origin","dest"}`."""
        encode = msgspec.json.Encoder().encode
        columns = (self.score_time_ms, self.score, self.carrier, self.origin, self.dest)
        for event_id, ts, score, carrier, origin, dest in zip(
            self.event_id[rows], *(column[rows].tolist() for column in columns), strict=True
        ):
            yield encode(
                {
                    "event_id": event_id,
                    "ts": ts,
                    "score": score,
                    "carrier": self.carriers[carrier],
                    "origin": self.origins[origin],
                    "dest": self.dests[dest],
                }
            )

    def label_events(self, rows: slice = slice(None)) -> Iterator[bytes]:
        """The label events of the rows as JSON: `{"event_id","ts","label"}`."""
        encode = msgspec.json.Encoder().encode
        columns = (self.label_row, self.label_time_ms, self.label)
        for row, ts, label in zip(*(column[rows].tolist() for column in columns), strict=True):
            yield encode({"event_id": self.event_id[row], "ts": ts, "label": label})


def day_index(time_ms: NDArray[np.int64]) -> NDArray[np.int64]:
    """Days since 1970-01-01T10:00Z that the times (n,) in epoch milliseconds fall into."""
    return (time_ms - DAY_START_MS) // DAY_MS


def load_flights() -> Flights:
    """Reads the data that is shipped with the package."""
    packed = resources.files("stream_calib.demo").joinpath("data/flights.npz").read_bytes()
    with np.load(BytesIO(packed), allow_pickle=False) as stored:
        columns = {name: stored[name] for name in stored.files}
    carriers, origins, dests = (
        tuple(columns[name].astype(np.str_).tolist()) for name in ("carriers", "origins", "dests")
    )
    minute = columns["first_minute"][0] + np.cumsum(columns["minutes_since_previous"], dtype=np.int64)
    departure = np.datetime_as_string(minute.astype("datetime64[m]")).tolist()
    event_id = [
        f"{carriers[c]}{number}-{origins[o]}-{dests[d]}-{when.replace('-', '').replace(':', '')}Z"
        for c, number, o, d, when in zip(
            *(columns[name].tolist() for name in ("carrier", "number", "origin", "dest")), departure, strict=True
        )
    ]
    labelled = np.flatnonzero(columns["label_delay_minutes"])
    arrival = minute[labelled] + columns["label_delay_minutes"][labelled]
    order = np.lexsort((np.array(event_id)[labelled], arrival))
    return Flights(
        event_id=event_id,
        score_time_ms=minute * MINUTE_MS,
        score=columns["score"],
        carrier=columns["carrier"],
        origin=columns["origin"],
        dest=columns["dest"],
        carriers=carriers,
        origins=origins,
        dests=dests,
        label_row=labelled[order],
        label_time_ms=arrival[order] * MINUTE_MS,
        label=columns["label"][labelled][order].astype(np.int8),
    )
