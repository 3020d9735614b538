"""Streams the flights (scores, and the outcomes when the flights have arrived) into the topics of a configuration.

Events go out in the order of their event times and keep these, so that a day passes in seconds:

    python examples/flights/produce.py --config stream-calib.toml --per-second 200
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stream_calib.config import Config
from stream_calib.config_file import load_config
from stream_calib.demo.flights import Flights, load_flights
from stream_calib.transport.port import Outgoing
from workers.deployment import open_log

_WRITES_PER_SECOND = 10
_REPORT_EVERY_S = 10.0


class Piece(NamedTuple):
    """Events that follow each other in event time, and go out together."""

    until_ms: int
    """Event time of the last of them, epoch milliseconds."""
    scores: slice
    labels: slice


def pieces(flights: Flights, events: int, days: int | None) -> Iterator[Piece]:
    """All events of the first `days` days, `events` at a time. At equal times scores come before labels."""
    used = flights.days()[:days]
    scores, labels = used[-1].scores.stop, used[-1].labels.stop
    times = np.concatenate((flights.score_time_ms[:scores], flights.label_time_ms[:labels]))
    order = np.argsort(times, kind="stable")
    score_events = np.concatenate(([0], np.cumsum(order < scores)))
    for start in range(0, len(order), events):
        stop = min(start + events, len(order))
        s0, s1 = int(score_events[start]), int(score_events[stop])
        yield Piece(int(times[order[stop - 1]]), slice(s0, s1), slice(start - s0, stop - s1))


def outgoing(flights: Flights, piece: Piece, config: Config) -> list[Outgoing]:
    """The piece as records. The key is the event id, so that partitions share the flights evenly."""
    label_ids = [flights.event_id[row] for row in flights.label_row[piece.labels].tolist()]
    return [
        Outgoing(topic, event_id.encode(), value)
        for topic, ids, values in (
            (config.topics.scores, flights.event_id[piece.scores], flights.score_events(piece.scores)),
            (config.topics.labels, label_ids, flights.label_events(piece.labels)),
        )
        for event_id, value in zip(ids, values, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = os.environ.get("STREAM_CALIB_CONFIG", "stream-calib.toml")
    parser.add_argument("--config", type=Path, default=Path(default), help="the deployment's TOML file")
    parser.add_argument("--per-second", type=int, default=200, help="events a second, scores and labels together")
    parser.add_argument("--days", type=int, help="only the first so many days of the 306")
    arguments = parser.parse_args()
    config, flights = load_config(arguments.config, os.environ), load_flights()
    events = max(1, arguments.per_second // _WRITES_PER_SECOND)
    sent, due = 0, time.monotonic()
    reported = due
    with open_log(config) as log:
        for piece in pieces(flights, events, arguments.days):
            time.sleep(max(0.0, due - time.monotonic()))
            records = outgoing(flights, piece, config)
            log.produce(records)
            sent += len(records)
            due += len(records) / arguments.per_second
            if time.monotonic() - reported >= _REPORT_EVERY_S:
                reported = time.monotonic()
                print(f"{sent:,} events, until {_readable(piece.until_ms)}", flush=True)
    print(f"{sent:,} events, all that there are", flush=True)


def _readable(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


if __name__ == "__main__":
    main()
