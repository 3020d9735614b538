"""Files, tables and queries as relations in DuckDB, the extra `files`.

What DuckDB says of a file that it cannot read becomes a HistoryError with the file and what to do.
"""

from __future__ import annotations

import glob
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from stream_calib.backtest.files.reading_packed import UNPACK, UNREADABLE
from stream_calib.backtest.tables.columns import ColumnKind, Field, Table, name_literal, text_literal
from stream_calib.errors import HistoryError

if TYPE_CHECKING:
    import duckdb

FileKind: TypeAlias = Literal["parquet", "csv", "ndjson"]

KIND_OF_SUFFIX: dict[str, FileKind] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "ndjson",
}
_SAMPLED_OBJECTS = 50_000
_UNPACKED_BYTES = 1_048_576
_PACKINGS = (".gz", ".zst")
"""What DuckDB unpacks; Parquet is packed inside."""
_KINDS: dict[str, ColumnKind] = {
    "VARCHAR": "text",
    "UUID": "text",
    "BOOLEAN": "boolean",
    "FLOAT": "float",
    "DOUBLE": "float",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_S": "timestamp",
    "TIMESTAMP_MS": "timestamp",
    "TIMESTAMP_NS": "timestamp",
    "TIMESTAMP WITH TIME ZONE": "zoned",
    "DATE": "date",
    "JSON": "json",
}


def connect(threads: int | None = None, database: Path | None = None) -> duckdb.DuckDBPyConnection:
    """A connection to a DuckDB in memory, or to a database that is only read; times without a zone are UTC.

    Raises HistoryError where DuckDB is not there, or the database cannot be opened.
    """
    try:
        import duckdb
    except ImportError as error:
        raise HistoryError(
            f"files and tables are read with DuckDB, which is not there ({error}): `pip install stream-calib[files]`"
        ) from error
    with readable("DuckDB" if database is None else str(database)):
        opened = duckdb.connect(":memory:" if database is None else str(database), read_only=database is not None)
        opened.execute("SET TimeZone = 'UTC'")
        # Statistics of Parquet leave NaN out, and DuckDB concludes from them that no row is NaN: these would count.
        opened.execute("SET disabled_optimizers = 'statistics_propagation'")
        # What does not fit into memory goes there; by default it would be the folder that one happens to be in. DuckDB
        # makes the folder when it needs it, and removes it.
        spill = Path(tempfile.gettempdir()) / f"stream-calib-duckdb-{uuid.uuid4().hex}"
        opened.execute(f"SET temp_directory = {text_literal(str(spill))}")
        if threads is not None:
            opened.execute(f"SET threads = {threads:d}")
        return opened


@contextmanager
def readable(source: str) -> Iterator[None]:
    """Errors of DuckDB in the block become HistoryError: what is read, its message, and what may help. What it makes of
    Ctrl-C becomes KeyboardInterrupt again."""
    import duckdb

    try:
        yield
    except duckdb.InterruptException as error:
        raise KeyboardInterrupt from error
    except RuntimeError as error:
        if str(error) == "Query interrupted":
            raise KeyboardInterrupt from error
        raise
    except duckdb.Error as error:
        raise HistoryError(f"{source}: {_first_lines(str(error))}{_advice(str(error))}") from error


@contextmanager
def readable_on(source: str) -> Iterator[None]:
    """Around `record_batches`, as `readable`: behind the first rows an error of DuckDB comes as one of Arrow. Raises
    HistoryError also where pyarrow is not there."""
    try:
        import pyarrow
    except ImportError as error:
        raise HistoryError(
            f"{source}: many rows are read with DuckDB and pyarrow, which is not there ({error}): `pip install"
            " stream-calib[files]`"
        ) from error
    try:
        with readable(source):
            yield
    except (pyarrow.ArrowException, OSError) as error:
        what = f"{_first_lines(str(error))}{_advice(str(error))}"
        raise HistoryError(f"{source}: cannot be read on: {what}") from error


def open_files(connection: duckdb.DuckDBPyConnection, paths: Sequence[str | Path]) -> Table:
    """The rows of files of one kind, by their names: Parquet (.parquet, .pq), CSV (.csv, .tsv), NDJSON (.ndjson,
    .jsonl, .json: an object a line); the latter two also packed (.gz, .zst).

    A path may have wildcards. Columns are put together by their names; one that some files lack is null there. Raises
    HistoryError where nothing matches, a file is empty, not readable or not of its kind, or there are several kinds.
    """
    files = [file for path in paths for file in matching_files(str(path))]
    if not files:
        raise HistoryError("no files were given")
    kinds = {file: _file_kind(file) for file in files}
    if len(set(kinds.values())) > 1:
        found = ", ".join(sorted(set(kinds.values())))
        raise HistoryError(f"the files are of several kinds ({found}); one table is made of files of one kind")
    for file in files:
        _check_packed(file)
    kind, names = kinds[files[0]], "[" + ", ".join(map(text_literal, files)) + "]"
    source = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    if kind == "parquet":
        return describe(connection, f"read_parquet({names}, union_by_name = true)", source)
    if kind == "csv":
        options = "header = true, all_varchar = true, union_by_name = true"
        _check_names(connection, files)
        return describe(connection, f"read_csv({names}, {options})", source, cells=True)
    # Members that only later objects have are no fault with `union_by_name`, also of a single file.
    options = f"format = 'newline_delimited', maximum_depth = 1, sample_size = {_SAMPLED_OBJECTS}, union_by_name = true"
    table = describe(connection, f"read_json({names}, {options})", source)
    if list(table.fields) == ["json"]:  # what DuckDB calls lines that are no objects
        raise HistoryError(f"{source}: its lines are no objects; write one JSON object a line, not an array of them")
    return table


def open_query(connection: duckdb.DuckDBPyConnection, query: str) -> Table:
    """The rows of a table's name or of a SELECT. Raises HistoryError where it is neither."""
    text = query.strip().rstrip(";")
    selects = text.split(None, 1)[:1] and text.split(None, 1)[0].lower() in ("select", "with", "from")
    return describe(connection, f"({text})" if selects else text, text if len(text) <= 60 else f"{text[:57]}...")


def describe(connection: duckdb.DuckDBPyConnection, sql: str, source: str, *, cells: bool = False) -> Table:
    """The table that stands behind FROM, with its columns. `cells`: its text has no types (CSV)."""
    with readable(source):
        described = connection.execute(f"SELECT * FROM {sql} LIMIT 0").description
    fields: dict[str, Field] = {}
    members: dict[str, Field] = {}
    for name, type_, *_ in described:
        kind = column_kind(str(type_))
        fields[name] = Field(name_literal(name), "cell" if cells and kind == "text" else kind, str(type_))
        members |= _members(name, name_literal(name), type_)
    return Table(sql, source, fields | {path: field for path, field in members.items() if path not in fields})


def record_batches(connection: duckdb.DuckDBPyConnection, sql: str, rows: int) -> Iterator[Any]:
    """pyarrow.RecordBatch of about so many rows, while the query goes on.

    Raises duckdb.Error for the first rows, and behind them OSError or pyarrow.ArrowException: use it in `readable_on`.
    """
    relation = connection.sql(sql)
    # Before DuckDB 1.5 it has the other name.
    read = relation.to_arrow_reader if hasattr(relation, "to_arrow_reader") else relation.fetch_arrow_reader
    yield from read(rows)


def _check_names(connection: duckdb.DuckDBPyConnection, files: Sequence[str]) -> None:
    """DuckDB gives the second of two equal names a number. Raises HistoryError where a header has a name twice."""
    for file in files:
        # DuckDB pads no rows in parallel where a quoted cell has a line break.
        options = "header = false, all_varchar = true, null_padding = true, parallel = false"
        sql = f"SELECT * FROM read_csv({text_literal(file)}, {options})"
        with readable(file):
            header = connection.execute(f"{sql} LIMIT 1").fetchone() or ()
        twice = next((name for name in header if name is not None and header.count(name) > 1), None)
        if twice is not None:
            raise HistoryError(f"{file}: it has several columns {twice!r}; give them names of their own")


def _members(path: str, sql: str, type_: Any) -> dict[str, Field]:
    """Of a struct, at all depths."""
    if not str(type_).upper().startswith("STRUCT(") or str(type_).endswith("]"):
        return {}
    found: dict[str, Field] = {}
    for name, inner in type_.children:
        member = Field(f"{sql}.{name_literal(name)}", column_kind(str(inner)), str(inner))
        found |= {f"{path}.{name}": member} | _members(f"{path}.{name}", member.sql, inner)
    return found


def column_kind(type_text: str) -> ColumnKind:
    """What a column of a type holds, by the type's name in DuckDB."""
    text = type_text.upper()
    if text in _KINDS:
        return _KINDS[text]
    if text.endswith("]") or text.startswith(("STRUCT", "MAP", "UNION", "VARIANT")):
        return "nested"
    if text.startswith("ENUM"):
        return "text"
    if text.startswith("DECIMAL"):
        return "decimal"
    return "integer" if text.endswith(("INT", "INTEGER")) else "other"


def matching_files(pattern: str) -> list[str]:
    """The file of that name, or those that match where it has wildcards, sorted.

    Raises HistoryError where there is none, or one is a folder, empty or cannot be opened.
    """
    path = Path(pattern)
    if path.is_dir():
        raise HistoryError(f"{pattern}: is a folder; name its files, as {pattern.rstrip('/')}/*.parquet")
    files = [pattern] if path.exists() or not glob.has_magic(pattern) else sorted(glob.glob(pattern, recursive=True))
    if not files:
        raise HistoryError(f"{pattern}: no file matches")
    for file in files:
        try:
            with Path(file).open("rb") as opened:
                empty = not opened.read(1)
        except OSError as error:
            raise HistoryError(f"{file}: cannot be read: {error.strerror}") from error
        if empty:
            raise HistoryError(f"{file}: is empty, it has not even a header; leave it out or write it again")
    return files


def _check_packed(file: str) -> None:
    """DuckDB takes a file of Zstandard that was cut off for one that has ended. Raises HistoryError."""
    if not file.lower().endswith(".zst"):
        return
    try:
        with Path(file).open("rb") as packed, UNPACK[".zst"](packed) as content:
            while content.read(_UNPACKED_BYTES):
                pass
    except UNREADABLE as error:
        raise HistoryError(f"{file}: cannot be unpacked: {error}; write it again") from error


def _file_kind(file: str) -> FileKind:
    suffixes = [suffix.lower() for suffix in Path(file).suffixes]
    packed = bool(suffixes) and suffixes[-1] in _PACKINGS
    kind = KIND_OF_SUFFIX.get(suffixes[-2] if packed and len(suffixes) > 1 else suffixes[-1] if suffixes else "")
    if kind is None or (packed and kind == "parquet"):
        raise HistoryError(
            f"{file}: of no kind that is read here; name it .parquet, or .csv, .ndjson, .jsonl or .json (an object a"
            f" line), these also packed {' or '.join(_PACKINGS)}, or convert it"
        )
    return kind


def _first_lines(message: str) -> str:
    """What DuckDB says, without the query and the options that it was given."""
    text = message.split("\nLINE ")[0].split("\n\n")[0].strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines[:3])[:400].rstrip(".")


def _advice(message: str) -> str:
    for sign, advice in (
        ("No magic bytes", ". It is not Parquet, or its writing was not finished: write it again"),
        ("too small to be a Parquet", ". It is not Parquet, or its writing was not finished: write it again"),
        ("Malformed JSON", ". Each line must be one JSON object"),
        ("Error when sniffing", ". Save it as UTF-8 with a header line, one kind of delimiter and quoted cells"),
        ("Expected Number of Columns", ". Quote cells that hold the delimiter or line ends"),
        ("Could not convert", ". The files give one column several types; write them with one"),
    ):
        if sign in message:
            return advice
    return ""
