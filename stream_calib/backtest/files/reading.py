"""Files of scores or labels, one after the other, as rows of a fixed width.

Parquet and CSV are read as columns, by DuckDB; NDJSON line by line.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stream_calib.backtest.files.reading_names import DataFile
from stream_calib.backtest.files.reading_packed import UNPACK, UNREADABLE, lines
from stream_calib.backtest.files.reading_rows import Read, SideReport
from stream_calib.backtest.files.reading_values import CellKind, Column, Columns, Role, Wanted
from stream_calib.backtest.tables.columns import Field, Table, name_literal, text_literal
from stream_calib.backtest.tables.duckdb_files import open_files, readable, readable_on, record_batches
from stream_calib.errors import HistoryError

if TYPE_CHECKING:
    import duckdb

_BATCH_ROWS, _BATCH_LINES = 1 << 17, 5_000
_COPIED_BYTES = 1 << 20
_DELIMITERS = ",;\t|"


class ColumnReader(Protocol):
    """Reads rows of Parquet and CSV."""

    @property
    def wanted(self) -> Sequence[Wanted]:
        """The columns to be read."""

    def read(self, n: int, columns: Columns) -> Read:
        """The n rows of the columns."""


class LineReader(Protocol):
    """Reads lines of NDJSON."""

    def read(self, values: Sequence[bytes]) -> Read:
        """The values of some records."""


class SideFiles:
    """The files of one side (scores, or labels), to be read once."""

    def __init__(
        self,
        files: Sequence[DataFile],
        open_engine: Callable[[], duckdb.DuckDBPyConnection],
        columns: ColumnReader,
        values: LineReader,
        max_line_bytes: int,
    ) -> None:
        self.files = files
        self.report = SideReport()
        self.rows_in_all = 0
        """As far as `count` has found out."""
        self._open_engine = open_engine
        self._engine: duckdb.DuckDBPyConnection | None = None
        self._columns, self._values, self._max_line_bytes = columns, values, max_line_bytes

    def count(self) -> None:
        """Learns how many rows Parquet files have. Raises HistoryError where one cannot be read."""
        for file in self.files:
            if file.kind == "parquet":
                connection = self._connection()
                with readable(file.name):
                    self.rows_in_all += _row_count(connection, file)

    def rows(self) -> Iterator[NDArray[np.void]]:
        """The rows of all files in their order. Raises HistoryError where a file cannot be read (on)."""
        for file in self.files:
            read = self._of_lines(file) if file.kind == "ndjson" else self._of_columns(file)
            for found, places in read:
                self.report.take(found, file.name, places)
                if len(found.rows):
                    yield found.rows

    def close(self) -> None:
        """Lets go of the engine."""
        if self._engine is not None:
            self._engine.close()

    def _connection(self) -> duckdb.DuckDBPyConnection:
        if self._engine is None:
            self._engine = self._open_engine()
        return self._engine

    def _of_columns(self, file: DataFile) -> Iterator[tuple[Read, Sequence[int]]]:
        with tempfile.NamedTemporaryFile(prefix="stream-calib-", suffix=".csv") as unpacked:
            path = file.path
            if file.packing:  # not by DuckDB, to which a file of Zstandard that was cut off is one that has ended
                _unpack(file, unpacked)
                path = Path(unpacked.name)
            try:
                table = replace(open_files(self._connection(), [path]), source=file.name)
            except HistoryError as error:
                raise HistoryError(str(error).replace(str(path), file.name)) from error
            _check_header(table, path, [column.path for column in self._columns.wanted])
            chosen = _chosen(table, self._columns.wanted)
            before = 0
            with readable_on(file.name):
                for batch in _record_batches(self._connection(), table, chosen):
                    n = batch.num_rows
                    yield self._columns.read(n, _columns_of(batch, chosen)), range(before + 1, before + n + 1)
                    before += n

    def _of_lines(self, file: DataFile) -> Iterator[tuple[Read, Sequence[int]]]:
        line = 0
        try:
            with file.path.open("rb") as raw:
                content: Any = UNPACK[file.packing](raw) if file.packing else raw
                read = lines(content, self._max_line_bytes)
                while chunk := list(islice(read, _BATCH_LINES)):
                    line = chunk[-1][0]
                    yield self._values.read([value for _, value in chunk]), [at for at, _ in chunk]
        except UNREADABLE as error:
            raise HistoryError(f"{file.name}: cannot be read on after line {line}: {error}") from error


def _check_header(table: Table, path: Path, wanted: Sequence[str]) -> None:
    """Raises HistoryError where DuckDB took a table of several columns for one of a single column, or gave a second
    column of a wanted name another one."""
    (header, *others) = table.fields
    if not others and any(delimiter in header for delimiter in _DELIMITERS):
        raise HistoryError(
            f"{table.source}: its lines cannot be cut into the columns of its header, {header!r:.200}: some have more"
            " cells, or fewer; quote cells that hold delimiters or line ends"
        )
    for name in wanted:
        if name in table.fields and table.fields[name].kind == "cell" and f"{name}_1" in table.fields:
            with path.open(encoding="utf-8-sig") as lines_of_file:
                names = [cell.strip('" \n') for cell in re.split(f"[{_DELIMITERS}]", lines_of_file.readline())]
            if names.count(name) > 1:
                raise HistoryError(f"{table.source}: it has several columns {name!r}; give them names of their own")


def _row_count(connection: duckdb.DuckDBPyConnection, file: DataFile) -> int:
    of_groups = connection.execute(f"SELECT num_rows FROM parquet_file_metadata({text_literal(str(file.path))})")
    return sum(int(rows) for (rows,) in of_groups.fetchall())


class _Chosen(NamedTuple):
    path: str
    role: Role
    sql: str
    absent_sql: str | None
    kind: CellKind
    type: str


def _chosen(table: Table, wanted: Sequence[Wanted]) -> list[_Chosen]:
    """What to select of the table for each column that it has. Raises HistoryError where a required one is missing."""
    found = []
    for path, role, required in dict.fromkeys(wanted):
        if not required and path not in table.fields:
            continue
        field = table.field(path)
        sql, kind = _selected(field, role)
        absent_sql = f"{field.sql} IS NULL" if field.kind == "cell" else None
        if field.sql != name_literal(path):  # a member of a struct, which may be null itself
            absent_sql = f"{table.fields[path.rpartition('.')[0]].sql} IS NULL"
        found.append(_Chosen(path, role, sql, absent_sql, kind, field.type))
    return found


def _selected(field: Field, role: Role) -> tuple[str, CellKind]:
    sql = field.sql
    if field.kind == "cell":
        return sql, "cell" if role in ("number", "time") else "text"
    if field.kind == "text":
        return f"CAST({sql} AS VARCHAR)", "text"
    if field.kind == "boolean":
        return sql, "boolean"
    if role == "time" and field.kind in ("timestamp", "zoned", "date"):
        return sql, "instant"
    if role == "text" and (field.kind in ("integer", "date") or field.type.endswith(",0)")):
        return f"CAST({sql} AS VARCHAR)", "text"
    if field.kind == "float" or (field.kind == "integer" and "HUGE" not in field.type):
        return sql, "number"
    if field.kind == "integer":
        return f"CAST({sql} AS DOUBLE)", "number"
    if field.kind == "decimal":
        return sql, "decimal"
    return f"CASE WHEN {sql} IS NULL THEN NULL ELSE true END", "unusable"


def _record_batches(connection: duckdb.DuckDBPyConnection, table: Table, chosen: Sequence[_Chosen]) -> Iterator[Any]:
    """pyarrow.RecordBatch of the chosen columns, and behind them where those are absent."""
    selected = [c.sql for c in chosen] + [c.absent_sql for c in chosen if c.absent_sql]
    names = ", ".join(f"{sql} AS c{i}" for i, sql in enumerate(selected))
    return record_batches(connection, f"SELECT {names} FROM {table.sql}", _BATCH_ROWS)


def _columns_of(batch: Any, chosen: Sequence[_Chosen]) -> dict[tuple[str, Role], Column]:
    columns: dict[tuple[str, Role], Column] = {}
    behind = len(chosen)
    for i, (path, role, _, absent_sql, kind, type_text) in enumerate(chosen):
        absent = None
        if absent_sql is not None:
            absent = batch.column(behind).to_numpy(zero_copy_only=False)
            behind += 1
        columns[path, role] = Column(path, kind, batch.column(i), type_text, absent)
    return columns


def _unpack(file: DataFile, into: IO[bytes]) -> None:
    """Raises HistoryError where the file is damaged or cut off."""
    try:
        with file.path.open("rb") as raw:
            content: Any = UNPACK[file.packing](raw)
            while part := content.read(_COPIED_BYTES):
                into.write(part)
        into.flush()
    except UNREADABLE as error:
        raise HistoryError(f"{file.name}: cannot be unpacked: {error}") from error
