"""Replays of files, timed: exactly, event by event, and as cells that DuckDB counts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.replay_traffic import CONFIG, MODEL, Files
from stream_calib.backtest.exact.replay import ExactReplay
from stream_calib.backtest.files.feed import FileFeed
from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.tables.cells import UnitBuckets, cells_of_tables
from stream_calib.backtest.tables.columns import LabelColumns, ScoreColumns
from stream_calib.backtest.tables.duckdb_files import connect, open_files, open_query
from stream_calib.backtest.tables.engine import DuckDBEngine
from stream_calib.windows.column_shards import ColumnShards
from stream_calib.windows.panes import PaneSettings

Advance = Callable[[int, int], None]
"""Is told of events that are done, and of all."""


class Took(NamedTuple):
    """CPU seconds are of all threads of the process."""

    events: int
    wall_s: float
    cpu_s: float

    @property
    def per_second(self) -> float:
        return self.events / self.wall_s

    def per_cpu_second(self, cores: int = 1) -> float:
        """What so many cores would do that nothing else uses."""
        return cores * self.events / self.cpu_s


@contextmanager
def one_core() -> Iterator[None]:
    """This process has one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def exact(files: Files, advance: Advance) -> tuple[Took, CellHistory]:
    """Reading, hashing, putting in order, join, closing and maturing, on one core."""
    with one_core(), FileFeed([files.scores], [files.labels], CONFIG, MODEL, threads=1) as feed:
        wall, cpu = time.perf_counter(), time.process_time()
        shards = ColumnShards(CONFIG.windows.shards, PaneSettings.of(CONFIG))
        history = ExactReplay(feed, CONFIG, MODEL, shards).run(advance)
        return Took(files.events, time.perf_counter() - wall, time.process_time() - cpu), history


def feed_alone(files: Files) -> Took:
    """Reading, hashing and putting in order alone."""
    with one_core(), FileFeed([files.scores], [files.labels], CONFIG, MODEL, threads=1) as feed:
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in feed.batches():
            pass
        return Took(files.events, time.perf_counter() - wall, time.process_time() - cpu)


def counted_by_duckdb(files: Files, buckets: UnitBuckets, cores: int) -> tuple[Took, CellHistory]:
    """Both tables joined and counted, by so many threads."""
    connection = connect(cores)
    try:
        scores, labels = open_files(connection, [files.scores]), open_files(connection, [files.labels])
        columns = ScoreColumns.of(CONFIG, MODEL), LabelColumns.of(CONFIG)
        wall, cpu = time.perf_counter(), time.process_time()
        engine = DuckDBEngine(connection)
        history = cells_of_tables(engine, scores, columns[0], labels, columns[1], CONFIG, MODEL, buckets=buckets)
        return Took(files.events, time.perf_counter() - wall, time.process_time() - cpu), history
    finally:
        connection.close()


def counted_of_one_table(table: Path, rows: int, buckets: UnitBuckets, cores: int) -> tuple[Took, CellHistory]:
    """Scores that have their labels in their rows."""
    connection = connect(cores)
    try:
        scores = open_query(connection, f"SELECT * FROM '{table}'")
        score_columns = ScoreColumns.of(CONFIG, MODEL)
        label_columns = LabelColumns(label="label", time=LabelColumns.of(CONFIG).time)
        wall, cpu = time.perf_counter(), time.process_time()
        engine = DuckDBEngine(connection)
        history = cells_of_tables(engine, scores, score_columns, None, label_columns, CONFIG, MODEL, buckets=buckets)
        return Took(rows, time.perf_counter() - wall, time.process_time() - cpu), history
    finally:
        connection.close()


def as_one_table(files: Files, table: Path) -> None:
    """Writes the scores with their labels."""
    connection = connect()
    try:
        connection.execute(
            f"COPY (SELECT s.*, l.label, l.label_ts FROM '{files.scores}' s LEFT JOIN '{files.labels}' l"
            f" USING (event_id) ORDER BY ts) TO '{table}' (FORMAT parquet)"
        )
    finally:
        connection.close()
