"""What `replay.py` replays: hour after hour of scores and, up to half a day later, their labels, as numbers, and
written as Parquet.

One score in 20 has no label, and one in 50 comes twice, the same row again. 48 groups of two attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from stream_calib.config import Config
from stream_calib.events.contracts import ModelKey

MODEL = ModelKey("benchmark", "1")
HOUR_MS = 3_600_000
FIRST_MS = 1_700_000_000_000 // HOUR_MS * HOUR_MS
LABEL_LAG_MS = 12 * HOUR_MS
CARRIERS, ORIGINS = 16, 3
_UNLABELLED_SHARE, _REPEATED_SHARE = 0.05, 0.02

CONFIG = Config.model_validate(
    {
        "model": {"name": MODEL.model, "version": MODEL.version},
        "scores": {
            "id": "event_id",
            "score": "score",
            "time": {"path": "ts", "unit": "ms"},
            "attributes": {"carrier": "carrier", "origin": "origin"},
        },
        "labels": {"id": "event_id", "label": "label", "time": {"path": "label_ts", "unit": "ms"}},
        "windows": {"horizon": "1d", "max_clock_skew": "off", "idle_timeout": "off", "shards": 1},
    }
)


class Hour(NamedTuple):
    """Scores of an hour, columns (n,), and the labels dated in it, columns (m,); both by time."""

    number: NDArray[np.int64]
    """Of the event."""
    time_ms: NDArray[np.int64]
    score: NDArray[np.float64]
    group: NDArray[np.int64]
    """0 .. CARRIERS * ORIGINS - 1: carrier + CARRIERS * origin."""
    label_number: NDArray[np.int64]
    label_time_ms: NDArray[np.int64]
    label: NDArray[np.int64]

    @property
    def events(self) -> int:
        return len(self.number) + len(self.label_number)


def hours(count: int, scores_an_hour: int, seed: int = 1) -> Iterator[Hour]:
    """The same for the same numbers. The labels that are not due by the end come in the last hour's piece."""
    random = np.random.default_rng(seed)
    waiting_time: NDArray[np.int64] = np.empty(0, np.int64)
    waiting_number, waiting_label = waiting_time, waiting_time
    for hour in range(count):
        number = np.arange(hour * scores_an_hour, (hour + 1) * scores_an_hour)
        time_ms = FIRST_MS + hour * HOUR_MS + np.sort(random.integers(0, HOUR_MS, scores_an_hour))
        score = random.beta(2, 5, scores_an_hour)
        group = random.integers(0, CARRIERS * ORIGINS, scores_an_hour)
        labelled = random.random(scores_an_hour) >= _UNLABELLED_SHARE
        dated = time_ms[labelled] + 1 + random.integers(0, LABEL_LAG_MS, int(labelled.sum()))
        waiting_time = np.concatenate([waiting_time, dated])
        waiting_number = np.concatenate([waiting_number, number[labelled]])
        positive = random.random(len(dated)) < score[labelled]
        waiting_label = np.concatenate([waiting_label, positive.astype(np.int64)])
        due = (waiting_time < FIRST_MS + (hour + 1) * HOUR_MS) | (hour == count - 1)
        order = np.flatnonzero(due)[np.argsort(waiting_time[due], kind="stable")]
        rows = np.repeat(np.arange(scores_an_hour), 1 + (random.random(scores_an_hour) < _REPEATED_SHARE))
        yield Hour(
            number[rows],
            time_ms[rows],
            score[rows],
            group[rows],
            waiting_number[order],
            waiting_time[order],
            waiting_label[order],
        )
        waiting_time, waiting_number, waiting_label = (c[~due] for c in (waiting_time, waiting_number, waiting_label))


class Files(NamedTuple):
    scores: Path
    labels: Path
    score_rows: int
    label_rows: int

    @property
    def events(self) -> int:
        return self.score_rows + self.label_rows


def write_files(folder: Path, count: int, scores_an_hour: int, advance: Callable[[int], None]) -> Files:
    """`count` hours as scores.parquet and labels.parquet. `advance` hears of hours."""
    carriers, origins = (pa.array([f"{c}{i:02d}" for i in range(n)]) for c, n in (("C", CARRIERS), ("O", ORIGINS)))
    files = Files(folder / "scores.parquet", folder / "labels.parquet", 0, 0)
    writers: dict[Path, pq.ParquetWriter] = {}
    rows = {files.scores: 0, files.labels: 0}
    for hour in hours(count, scores_an_hour):
        group = hour.group
        tables = {
            files.scores: pa.table(
                {
                    "event_id": _ids(hour.number),
                    "ts": hour.time_ms,
                    "score": hour.score,
                    "carrier": carriers.take(pa.array(group % CARRIERS)),
                    "origin": origins.take(pa.array(group // CARRIERS)),
                }
            ),
            files.labels: pa.table(
                {"event_id": _ids(hour.label_number), "label": hour.label, "label_ts": hour.label_time_ms}
            ),
        }
        for path, table in tables.items():
            if path not in writers:
                writers[path] = pq.ParquetWriter(path, table.schema)
            writers[path].write_table(table)
            rows[path] += len(table)
        advance(1)
    for writer in writers.values():
        writer.close()
    return Files(files.scores, files.labels, rows[files.scores], rows[files.labels])


def _ids(number: NDArray[np.int64]) -> pa.Array:
    return pa.array([f"event-{n:012d}" for n in number.tolist()])
