"""The same SQL on other engines through ibis, the extra `warehouse`: it is carried to their dialects by sqlglot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stream_calib.backtest.tables.columns import ColumnKind, Field, Table, name_literal, text_literal
from stream_calib.backtest.tables.engine import Column, Engine, ResultType, Statement
from stream_calib.backtest.tables.tally import Counted
from stream_calib.errors import HistoryError

_DIALECT = "duckdb"
"""That the SQL is written in."""
_MOST_SHOWN = 400
_TYPES: Mapping[ResultType, str] = {"text": "string", "integer": "int64", "double": "float64"}


class IbisEngine(Engine):
    """A connection of ibis, as `ibis.bigquery.connect(...)` gives, which stays the caller's. Nothing is created there:
    small tables stand in the statements, so that the right to read is enough."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._given: dict[str, str] = {}
        """Name of a small table -> SQL of its rows."""

    def table(self, name_or_query: str) -> Table:
        """A table of the warehouse by its name, or a query in DuckDB's dialect. Raises HistoryError."""
        text = name_or_query.strip().rstrip(";")
        is_query = text.split(None, 1)[0].lower() in ("select", "with") if text else False
        try:
            found = self._connection.sql(text, dialect=_DIALECT) if is_query else self._connection.table(text)
            schema = found.schema()
        except Exception as error:
            raise _refused(text, error) from error
        fields = {name: Field(name_literal(name), _kind(type_), str(type_)) for name, type_ in schema.items()}
        return Table(f"({text})" if is_query else name_literal(text), text, fields)

    def rows(self, statement: Statement, source: str) -> list[tuple[Any, ...]]:
        found = self._run(statement, source)
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    def counts(self, statement: Statement, source: str) -> Counted:
        (name,) = statement.columns
        sql = f"SELECT {name}, count(*) AS n FROM ({statement.sql}) AS listed GROUP BY {name}"
        found = self._run(Statement(sql, {name: "integer", "n": "integer"}), source)
        key, n = (np.asarray(column, dtype=np.int64) for column in found.columns)
        order = np.argsort(key)
        return Counted(key[order], n[order])

    def texts(self, statement: Statement, source: str) -> list[str]:
        found: list[str] = self._run(statement, source).column(0).to_pylist()
        return found

    def put(self, name: str, columns: Mapping[str, Column]) -> None:
        rows = ", ".join(f"({', '.join(map(_literal, row))})" for row in zip(*columns.values(), strict=True))
        self._given[name] = f"SELECT * FROM (VALUES {rows}) AS given({', '.join(columns)})"

    def _run(self, statement: Statement, source: str) -> Any:
        schema = {name: _TYPES[type_] for name, type_ in statement.columns.items()}
        try:
            return self._connection.sql(self._with_given(statement.sql), schema=schema, dialect=_DIALECT).to_pyarrow()
        except Exception as error:
            raise _refused(source, error) from error

    def _with_given(self, sql: str) -> str:
        used = [f"{name} AS ({rows})" for name, rows in self._given.items() if name in sql]
        return f"WITH {', '.join(used)} {sql}" if used else sql


def _refused(source: str, error: Exception) -> HistoryError:
    """Each engine has errors of its own, which have nothing in common but that they are exceptions."""
    text = " ".join(str(error).split())[:_MOST_SHOWN] or type(error).__name__
    return HistoryError(f"{source}: the engine refuses it: {text}")


def _literal(value: Any) -> str:
    """As it stands in SQL; a double keeps its last bit."""
    if isinstance(value, str):
        return text_literal(value)
    if isinstance(value, np.floating):
        text = repr(float(value))
        return text if "e" in text else f"{text}e0"  # without an exponent it would be a decimal
    return str(int(value))


def _kind(type_: Any) -> ColumnKind:
    for name, kind in _KINDS.items():
        if getattr(type_, f"is_{name}")():
            return kind
    if type_.is_timestamp():
        return "timestamp" if type_.timezone is None else "zoned"
    return "other"


_KINDS: Mapping[str, ColumnKind] = {
    "string": "text",
    "uuid": "text",
    "boolean": "boolean",
    "integer": "integer",
    "floating": "float",
    "decimal": "decimal",
    "date": "date",
    "json": "json",
    "nested": "nested",
}
"""Kind of type in ibis, as in `is_string` -> what a column holds."""
