"""The port to an engine that runs SQL, and DuckDB behind it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from numpy.typing import NDArray

from stream_calib.backtest.tables.duckdb_files import readable, readable_on, record_batches
from stream_calib.backtest.tables.tally import Counted, Tally
from stream_calib.errors import HistoryError

if TYPE_CHECKING:
    import duckdb

ResultType: TypeAlias = Literal["text", "integer", "double"]
Column: TypeAlias = NDArray[Any] | Sequence[str]

_ROWS_A_BATCH = 1 << 20


class Statement(NamedTuple):
    """A query in DuckDB's dialect, and the columns of its result."""

    sql: str
    columns: Mapping[str, ResultType]


class Engine(ABC):
    """Runs statements over the tables of a warehouse. Raises HistoryError where it refuses."""

    @abstractmethod
    def rows(self, statement: Statement, source: str) -> list[tuple[Any, ...]]:
        """Of a small result. `source`: what is read, for errors."""

    @abstractmethod
    def counts(self, statement: Statement, source: str) -> Counted:
        """How often each number is there, of a large result of one column of integers without nulls."""

    @abstractmethod
    def texts(self, statement: Statement, source: str) -> list[str]:
        """Of a large result of one column of text."""

    @abstractmethod
    def put(self, name: str, columns: Mapping[str, Column]) -> None:
        """Makes a small temporary table, in place of one of that name."""


class DuckDBEngine(Engine):
    """A connection to DuckDB, which stays the caller's."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def rows(self, statement: Statement, source: str) -> list[tuple[Any, ...]]:
        with readable(source):
            return self._connection.execute(statement.sql).fetchall()

    def counts(self, statement: Statement, source: str) -> Counted:
        tally = Tally()
        with readable_on(source):
            for batch in record_batches(self._connection, statement.sql, _ROWS_A_BATCH):
                tally.add(batch.column(0).to_numpy())
        return tally.counted()

    def texts(self, statement: Statement, source: str) -> list[str]:
        with readable(source):
            (column,) = self._connection.execute(statement.sql).fetchnumpy().values()
        return [str(text) for text in column]

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
