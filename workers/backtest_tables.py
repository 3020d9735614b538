"""Scores and labels in tables to a history, counted inside DuckDB. Needs the extra `files`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.tables import LabelColumns, ScoreColumns, Table, TimeColumn
from stream_calib.backtest.tables_duckdb import connect, open_files, open_query
from stream_calib.backtest.warehouse import cells_of_tables
from stream_calib.backtest.warehouse_engine import DuckDBEngine
from stream_calib.config import Config
from stream_calib.errors import BacktestError
from stream_calib.events.contracts import ModelKey
from workers.backtest_sources import SourceOptions


def history_of_tables(options: SourceOptions, config: Config, key: ModelKey) -> CellHistory:
    """The history of files, or of tables and queries of a database; paths of the configuration are names of columns.

    Raises BacktestError.
    """
    with closing(connect(database=options.duckdb)) as connection:

        def opened(names: Sequence[str]) -> Table:
            if options.duckdb is None:
                return open_files(connection, names)
            if len(names) > 1:
                raise BacktestError(f"{', '.join(names)}: of a database, give one table or query of each kind")
            name = names[0]
            return open_query(connection, name if " " in name.strip() else f"SELECT * FROM {name}")

        labels = opened(options.labels) if options.labels else None
        return cells_of_tables(
            DuckDBEngine(connection),
            opened(options.scores or options.table),
            ScoreColumns.of(config, key),
            labels,
            _of_one_table(options, config) if labels is None else LabelColumns.of(config),
            config,
            key,
            buckets="exact" if options.live_buckets else "engine",
        )


def _of_one_table(options: SourceOptions, config: Config) -> LabelColumns:
    """Labels beside their scores: no id, and a time only where its column was named."""
    labels = config.labels
    time = None if options.label_time is None else TimeColumn(options.label_time, labels.time.unit)
    return LabelColumns(labels.label, time, model=labels.model, granularity_ms=labels.time_granularity_ms)
