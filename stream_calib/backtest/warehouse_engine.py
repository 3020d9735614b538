"""The port to an engine that runs SQL, and DuckDB behind it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream_calib.backtest.tables_duckdb import readable
from stream_calib.errors import HistoryError

if TYPE_CHECKING:
    import duckdb

Column: TypeAlias = NDArray[Any] | Sequence[str]


class Engine(ABC):
    """Runs SQL of DuckDB's dialect over the tables of a warehouse. Raises HistoryError where it refuses."""

    @abstractmethod
    def rows(self, sql: str, source: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Names and rows of a small result. `source`: what is read, for errors."""

    @abstractmethod
    def columns(self, sql: str, source: str) -> dict[str, NDArray[np.int64]]:
        """The columns of a large result of integers."""

    @abstractmethod
    def put(self, name: str, columns: Mapping[str, Column]) -> None:
        """Makes a small temporary table, in place of one of that name."""


class DuckDBEngine(Engine):
    """A connection to DuckDB, which stays the caller's."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def rows(self, sql: str, source: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        with readable(source):
            found = self._connection.execute(sql)
            return [str(column[0]) for column in found.description], found.fetchall()

    def columns(self, sql: str, source: str) -> dict[str, NDArray[np.int64]]:
        with readable(source):
            found = self._connection.execute(sql).fetchnumpy()
        return {name: np.asarray(column, dtype=np.int64) for name, column in found.items()}

    def put(self, name: str, columns: Mapping[str, Column]) -> None:
        with readable(name):
            self._connection.register(f"{name}_given", arrow_table(columns))
            self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM {name}_given")
            self._connection.unregister(f"{name}_given")


def arrow_table(columns: Mapping[str, Column]) -> Any:
    """The columns as a pyarrow.Table. Raises HistoryError where pyarrow is not there."""
    try:
        import pyarrow
    except ImportError as error:
        raise HistoryError(
            f"tables are given to engines with pyarrow, which is not there ({error}): `pip install stream-calib[files]`"
        ) from error
    return pyarrow.table({name: pyarrow.array(column) for name, column in columns.items()})
