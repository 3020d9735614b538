"""Scores and labels in tables to a history, counted inside DuckDB or another engine. Needs the extras `files`, or
`warehouse` for ibis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TypeAlias

from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.tables.cells import cells_of_tables
from stream_calib.backtest.tables.columns import LabelColumns, ScoreColumns, Table, TimeColumn
from stream_calib.backtest.tables.duckdb_files import connect, open_files, open_query
from stream_calib.backtest.tables.engine import DuckDBEngine, Engine
from stream_calib.backtest.tables.ibis_tables import IbisEngine
from stream_calib.config import Config
from stream_calib.config_values import mask_url
from stream_calib.errors import BacktestError
from stream_calib.events.contracts import ModelKey
from workers.backtest_sources import SourceOptions

_Open: TypeAlias = Callable[[Sequence[str]], Table]


def history_of_tables(options: SourceOptions, config: Config, key: ModelKey) -> CellHistory:
    """The history of files, or of tables and queries of a database; paths of the configuration are names of columns.

    Raises BacktestError.
    """
    with _engine(options) as (engine, opened):
        labels = opened(options.labels) if options.labels else None
        table = opened(options.scores or options.table)
        return cells_of_tables(
            engine,
            table,
            ScoreColumns.of(config, key),
            labels,
            _of_one_table(options, config, table) if labels is None else LabelColumns.of(config),
            config,
            key,
            buckets="exact" if options.live_buckets else "engine",
        )


@contextmanager
def _engine(options: SourceOptions) -> Iterator[tuple[Engine, _Open]]:
    """The engine, and what opens a table in it."""
    if options.ibis is not None:
        with _ibis(options.ibis) as other:
            yield other, lambda names: other.table(_only(names))
        return
    with closing(connect(database=options.duckdb)) as connection:
        files = options.duckdb is None

        def opened(names: Sequence[str]) -> Table:
            if files:
                return open_files(connection, names)
            name = _only(names)
            return open_query(connection, name if " " in name.strip() else f"SELECT * FROM {name}")

        yield DuckDBEngine(connection), opened


@contextmanager
def _ibis(address: str) -> Iterator[IbisEngine]:
    shown = mask_url(address)
    try:
        import ibis
    except ImportError as error:
        raise BacktestError(
            f"--ibis {shown}: ibis is not there ({error}): `pip install stream-calib[warehouse]`, and what ibis needs"
            " for that engine"
        ) from error
    try:
        connection = ibis.connect(address)
    except Exception as error:  # each engine has errors of its own
        said = " ".join(str(error).replace(address, shown).split())
        raise BacktestError(f"--ibis {shown}: cannot be connected to: {type(error).__name__}: {said}") from error
    try:
        yield IbisEngine(connection)
    finally:
        connection.disconnect()


def _only(names: Sequence[str]) -> str:
    if len(names) > 1:
        raise BacktestError(f"{', '.join(names)}: of a database, give one table or query of each kind")
    return names[0]


def _of_one_table(options: SourceOptions, config: Config, table: Table) -> LabelColumns:
    """Labels beside their scores: no id, and a time where its column was named, or labels.time names one of the table.
    The column of the scores' time is no time of labels: in events of their own both may be called the same."""
    labels, name = config.labels, options.label_time
    if name is None and labels.time.path != config.scores.time.path and labels.time.path in table.fields:
        name = labels.time.path
    time = None if name is None else TimeColumn(name, labels.time.unit)
    return LabelColumns(labels.label, time, model=labels.model, granularity_ms=labels.time_granularity_ms)
