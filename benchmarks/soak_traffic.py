"""The source and the reader of `soak.py`, each a process of its own.

    python -m benchmarks.soak_traffic write|burst CONFIG RATE SECONDS FIRST_EVENT_MS EVENT_SECONDS_A_SECOND
    python -m benchmarks.soak_traffic read CONFIG EVERY_SECONDS

Event time runs faster than the clock on the wall, so that refits and whole windows of panes fit into a few minutes. The
outcome of a score comes `LABEL_AFTER_S` after it. The truth is another one than the score, by group, and moves within
some days of event time, so refits have something to do. An event id begins with the time of writing (epoch
nanoseconds); the reader of `calibrated` (committed outputs only) prints the percentiles of their ages, a line each
while.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from stream_calib.config import Config
from stream_calib.config_file import load_config
from stream_calib.events.control import clock_record
from stream_calib.transport.port import Log, Outgoing, StartAt
from workers.deployment import open_log

LABEL_AFTER_S = 3.0
"""Seconds on the wall."""
_TICK_S = 0.02
_CARRIERS, _ORIGINS = 16, 3
_DAY_MS = 86_400_000
_SWING_DAYS = 5
_ID = re.compile(rb'"event_id":"(\d+)-')
_WRITTEN_AT_ONCE = 5_000


class Scores(NamedTuple):
    """What was written and waits for its labels; columns (n,)."""

    due_s: float
    ids: list[str]
    label: NDArray[np.int64]
    event_time_ms: NDArray[np.int64]


class Source:
    """Scores at a rate, and their labels. Prints a line when it begins."""

    def __init__(
        self, log: Log, config: Config, rate: float, first_event_ms: int, event_seconds_a_second: float
    ) -> None:
        self._log, self._topics = log, config.topics
        self._rate, self._first_ms, self._speed = rate, first_event_ms, event_seconds_a_second
        self._random = np.random.default_rng(first_event_ms)
        self._waiting: deque[Scores] = deque()
        self._written = 0

    def run(self, seconds: float, *, burst: bool) -> None:
        """`burst`: as fast as the log takes them."""
        print("begins", flush=True)
        began, total = time.monotonic(), int(seconds * self._rate)
        while self._written < total:
            now_s = self._written / self._rate + 1.0 if burst else time.monotonic() - began
            count = min(int(now_s * self._rate), total) - self._written
            records = self._scores(min(count, _WRITTEN_AT_ONCE))
            records += self._labels(self._written / self._rate)
            self._log.produce(records)
            if not burst and count < _WRITTEN_AT_ONCE:
                time.sleep(_TICK_S)
        if burst:
            # All labels: what comes next has its own source.
            self._log.produce(self._labels(math.inf))
            clock = clock_record(self._event_ms(total))
            self._log.produce(
                [
                    Outgoing(self._topics.labels, None, *clock, p)
                    for p in range(self._log.partitions(self._topics.labels))
                ]
            )

    def _event_ms(self, number: int) -> int:
        return self._first_ms + int(1_000 * self._speed * number / self._rate)

    def _scores(self, count: int) -> list[Outgoing]:
        numbers = np.arange(self._written, self._written + count)
        self._written += count
        score = np.round(self._random.beta(2, 5, count), 6)
        carrier, origin = numbers % _CARRIERS, numbers % _ORIGINS
        times = self._first_ms + (1_000 * self._speed * numbers / self._rate).astype(np.int64)
        swing = 0.4 * np.sin(2 * np.pi * times / (_SWING_DAYS * _DAY_MS))
        truth = expit(0.8 * logit(np.clip(score, 1e-6, 1 - 1e-6)) - 0.3 + 0.05 * (carrier - 8) + swing)
        label = (self._random.random(count) < truth).astype(np.int64)
        now_ns = time.time_ns()
        ids = [f"{now_ns}-{number}" for number in numbers.tolist()]
        self._waiting.append(
            Scores(float(numbers[0] / self._rate) + LABEL_AFTER_S if count else 0.0, ids, label, times)
        )
        rows = zip(
            numbers.tolist(), ids, times.tolist(), score.tolist(), carrier.tolist(), origin.tolist(), strict=True
        )
        return [
            Outgoing(
                self._topics.scores,
                None,
                f'{{"event_id":"{i}","ts":{t},"score":{s},"carrier":"C{c:02d}","origin":"O{o}"}}'.encode(),
                (),
                n % 4,
            )
            for n, i, t, s, c, o in rows
        ]

    def _labels(self, now_s: float) -> list[Outgoing]:
        records = []
        while self._waiting and self._waiting[0].due_s <= now_s:
            due = self._waiting.popleft()
            times = due.event_time_ms + int(1_000 * self._speed * LABEL_AFTER_S)
            records += [
                Outgoing(
                    self._topics.labels, None, b'{"event_id":"%b","label":%d,"ts":%d}' % (i.encode(), y, t), (), n % 4
                )
                for n, (i, y, t) in enumerate(zip(due.ids, due.label.tolist(), times.tolist(), strict=True))
            ]
        return records


def read(log: Log, topic: str, every_s: float) -> None:
    """Until it is ended: how old committed outputs were when they came, in milliseconds."""
    with log.consumer("soak-reader", [topic], member="reader", start=StartAt(earliest=False)) as consumer:
        ages: list[int] = []
        due = time.monotonic() + every_s
        while True:
            polled = consumer.poll(5_000, 20)
            now_ns = time.time_ns()
            found = (_ID.search(record.value or b"") for record in polled.records)
            ages += [now_ns - int(match[1]) for match in found if match]
            if time.monotonic() >= due:
                # So that the embedded log can be trimmed.
                consumer.commit([], {partition: consumer.position(partition) for partition in consumer.assignment()})
                due = time.monotonic() + every_s
                if ages:
                    p50, p99 = np.percentile(np.array(ages) / 1e6, [50, 99]).tolist()
                    print(json.dumps({"outputs": len(ages), "p50_ms": p50, "p99_ms": p99}), flush=True)
                ages = []


def main(what: str, config_file: str, *numbers: str) -> None:
    config = load_config(Path(config_file), {})
    if config.log.kind == "kafka":
        # What disturbs the service least, whatever client it has itself.
        config = config.model_copy(update={"log": config.log.model_copy(update={"kind": "librdkafka"})})
    with open_log(config) as log:
        if what == "read":
            read(log, config.topics.calibrated, float(numbers[0]))
        else:
            rate, seconds, first_event_ms, speed = map(float, numbers)
            Source(log, config, rate, int(first_event_ms), speed).run(seconds, burst=what == "burst")


if __name__ == "__main__":
    main(*sys.argv[1:])
