"""The flights as a task: refits every so many days on what has matured, each answering for the days until the next."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks import refits
from benchmarks.quality_data import Rows, Split, Task
from stream_calib.config import Config
from stream_calib.config_file import tomllib
from stream_calib.demo.flights import DAY_MS, load_flights

MATURITY_MS = DAY_MS
"""A label counts if it came within a day of its score, and is used for fits from then on."""
WARM_UP_DAYS = 14
HALF_LIFE_DAYS = 20.0


def flights_rows() -> tuple[Rows, NDArray[np.int64]]:
    """The flights with a timely outcome, in the order of their event times, and these times (n,) in milliseconds."""
    flights = load_flights()
    label = np.full(len(flights.score), -1, np.int64)
    timely = flights.label_time_ms <= flights.score_time_ms[flights.label_row] + MATURITY_MS
    label[flights.label_row[timely]] = flights.label[timely]
    used = np.flatnonzero(label >= 0)
    time_ms = flights.score_time_ms[used]
    columns = {"carrier": flights.carrier, "origin": flights.origin, "dest": flights.dest}
    rows = Rows(
        score=flights.score[used],
        label=label[used],
        block=(time_ms - flights.score_time_ms[0]) // DAY_MS,
        unit=used,
        codes={name: codes[used].astype(np.intp) for name, codes in columns.items()},
        values={"carrier": flights.carriers, "origin": flights.origins, "dest": flights.dests},
        intersections=(("carrier", "origin"),),
    )
    return rows, time_ms


def flights_task(every_days: int, days: int, half_life_days: float | None) -> Task:
    """Refits from the fifteenth day on, to all rows that have matured, alike or weighted by age."""
    rows, time_ms = flights_rows()
    begin = int(time_ms[0])
    splits = []
    for day in range(WARM_UP_DAYS, days, every_days):
        now, then = begin + day * DAY_MS, begin + min(day + every_days, days) * DAY_MS
        train = np.flatnonzero(time_ms + MATURITY_MS <= now)
        test = np.flatnonzero((time_ms >= now) & (time_ms < then))
        age_days = (now - time_ms[train]) / DAY_MS
        if len(test):
            splits.append(Split(train, test, None if half_life_days is None else 0.5 ** (age_days / half_life_days)))
    weighted = "" if half_life_days is None else f", half-life {half_life_days:g} days"
    return Task(f"flights, every {every_days} days{weighted}", rows, splits)


def service_answers(days: int) -> NDArray[np.float64]:
    """(n,) what the service itself serves in a replay of so many days: refits daily, chosen forward, gated."""
    config = Config.model_validate(tomllib.loads(refits.CONFIG.read_text(encoding="utf-8")))
    replayed = refits.Rows(load_flights(), config)
    _, served = refits.replay(config, replayed, days)
    answers = np.full(len(replayed.score), np.nan)
    answers[: len(served)] = served
    # Those with a timely outcome, as in `flights_rows`.
    return answers[replayed.label >= 0]
