"""Values of a table's columns as SQL, by the types that the columns have.

The text is DuckDB's dialect, with few functions, for sqlglot to carry to other engines. What a value means is that of
the records of topics (docs/events.md); where a column's type can hold no such value, the table is refused as a whole.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec

from stream_calib.backtest.tables.columns import ColumnKind, Field, Table, TimeColumn, text_literal
from stream_calib.errors import HistoryError
from stream_calib.events.attributes import attribute_text

_NUMBERS: tuple[ColumnKind, ...] = ("integer", "float", "decimal")
_TEXTS: tuple[ColumnKind, ...] = ("text", "cell")
_JSON_INTEGERS = "('BIGINT', 'UBIGINT', 'HUGEINT')"
_JSON_NUMBERS = "('BIGINT', 'UBIGINT', 'HUGEINT', 'DOUBLE')"
_ISO = (
    "[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.,][0-9]+)?)?"
    "([Zz]|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)?)?"
)


def attribute_value(field: Field, text: str, max_bytes: int) -> str | None:
    """The value of an attribute from what its column gave as text ("" for null); None where it cannot be used."""
    return attribute_text(_typed(field.kind, text), max_bytes)


def _typed(kind: ColumnKind, text: str) -> Any:
    if text == "":
        return None
    if kind == "json":
        return msgspec.json.decode(text)
    if kind == "integer":
        return int(text)
    if kind == "float":
        number = float(text)
        return None if number != number else number  # NaN is how many tables write "missing"
    if kind == "decimal":
        exact = Decimal(text)
        return int(exact) if exact == exact.to_integral_value() else float(exact)
    if kind == "boolean":
        return text.lower() in ("true", "t", "1")
    return text


def _refused(table: Table, path: str, what: str) -> HistoryError:
    return HistoryError(
        f"{table.source}: column {path!r} is of type {table.field(path).type}, which cannot be {what}; cast it in a"
        " query, or name another column"
    )


def is_absent(field: Field) -> str:
    """Holds where the value is null."""
    return (
        f"({field.sql} IS NULL OR json_type({field.sql}) = 'NULL')" if field.kind == "json" else f"{field.sql} IS NULL"
    )


def id_of(table: Table, path: str) -> str:
    """Text; null where the value is no id. Raises HistoryError for a column that can hold none, as the others."""
    field = table.field(path)
    if field.kind in _TEXTS:
        return field.sql if field.type == "VARCHAR" else f"CAST({field.sql} AS VARCHAR)"
    if field.kind == "integer":
        return f"CAST({field.sql} AS VARCHAR)"
    if field.kind == "json":
        return (
            f"CASE WHEN json_type({field.sql}) = 'VARCHAR' OR json_type({field.sql}) IN {_JSON_INTEGERS}"
            f" THEN json_extract_string({field.sql}, '$') END"
        )
    raise _refused(table, path, "an id: that is text or an integer")


def number_of(table: Table, path: str, what: str) -> str:
    """A double; null where the value is no number."""
    field = table.field(path)
    if field.kind in _NUMBERS:
        return field.sql if field.type == "DOUBLE" else f"CAST({field.sql} AS DOUBLE)"
    if field.kind in _TEXTS:
        return number_of_text(field)
    if field.kind == "json":
        return f"CASE WHEN json_type({field.sql}) IN {_JSON_NUMBERS} THEN CAST({field.sql} AS DOUBLE) END"
    raise _refused(table, path, f"{what}: that is a number")


def number_of_text(field: Field) -> str:
    """A double, null where the text is none. The column is not cast itself: DuckDB would leave that to its reader of
    CSV, for which a cell that cannot be cast is an error of the file, TRY_CAST or not."""
    return f"TRY_CAST(trim({field.sql}) AS DOUBLE)"


def text_of(table: Table, path: str, what: str) -> str:
    """Text; null where the value is none."""
    field = table.field(path)
    if field.kind in _TEXTS:
        return field.sql if field.type == "VARCHAR" else f"CAST({field.sql} AS VARCHAR)"
    if field.kind == "json":
        return f"CASE WHEN json_type({field.sql}) = 'VARCHAR' THEN json_extract_string({field.sql}, '$') END"
    raise _refused(table, path, f"{what}: that is text")


def attribute_of(table: Table, path: str) -> str:
    """What `attribute_value` reads; "" for null."""
    field = table.field(path)
    if field.kind == "nested" or field.kind == "other":
        raise _refused(table, path, "a group: that is text, a number or a truth value")
    text = field.sql if field.kind in _TEXTS and field.type == "VARCHAR" else f"CAST({field.sql} AS VARCHAR)"
    return f"coalesce({text}, '')"


def time_of(table: Table, time: TimeColumn, zone: str) -> str:
    """Epoch milliseconds, a big integer; null where the value is no time."""
    path, unit = time
    field = table.field(path)
    if field.kind in ("timestamp", "date"):
        # A cast of nanoseconds rounds, also up.
        cut = f"make_timestamp(epoch_ns({field.sql}) // 1000)" if field.type == "TIMESTAMP_NS" else field.sql
        return _epoch_ms(_at_zone(f"CAST({cut} AS TIMESTAMP)", zone))
    if field.kind == "zoned":
        return _epoch_ms(field.sql)
    if field.kind in (*_TEXTS, "json") and unit == "iso8601":
        return _iso_time(text_of(table, path, "a time"), zone)
    if unit == "iso8601":
        raise HistoryError(
            f"{table.source}: column {path!r} is of type {field.type}, and its times are said to be ISO 8601; say what"
            " its numbers count: seconds (s), milliseconds (ms) or microseconds (us)"
        )
    if field.kind == "integer":
        number = f"CAST({field.sql} AS BIGINT)"
        return {"ms": number, "s": f"{number} * 1000", "us": f"{number} // 1000"}[unit]
    number, factor = number_of(table, path, "a time"), {"us": "1.0", "ms": "1000.0", "s": "1000000.0"}[unit]
    # Read to the microsecond and cut to the millisecond; what is beyond the years that are read stays beyond.
    bounded = f"least(greatest({number}, 0.0) * {factor}, 5e15)"
    return f"CASE WHEN {number} IS NOT NULL AND NOT isnan({number}) THEN CAST(round({bounded}) AS BIGINT) // 1000 END"


def _epoch_ms(timestamp: str) -> str:
    """Cut to the millisecond; what has a zone is UTC as a timestamp without one, which is the zone of connections."""
    return f"date_diff('millisecond', CAST('1970-01-01 00:00:00' AS TIMESTAMP), CAST({timestamp} AS TIMESTAMP))"


def _at_zone(timestamp: str, zone: str) -> str:
    return timestamp if zone == "UTC" else f"timezone({text_literal(zone)}, {timestamp})"


def _iso_time(text: str, zone: str) -> str:
    """The same texts as `iso8601_ms` reads, cut to the millisecond."""
    cut = f"regexp_replace(replace(upper({text}), ',', '.'), '([.][0-9]{{3}})[0-9]+', '\\1')"
    spelled = f"regexp_replace({cut}, '(:.*[+-][0-9]{{2}})([0-9]{{2}})$', '\\1:\\2')"
    # Connections are in UTC, and so is a text without a zone, as that.
    time = _epoch_ms(f"TRY_CAST({spelled} AS TIMESTAMPTZ)")
    if zone != "UTC":
        told = f"regexp_matches({text}, '([Zz]|:.*[+-][0-9:]+)$')"
        time = f"CASE WHEN {told} THEN {time} ELSE {_epoch_ms(_at_zone(f'TRY_CAST({spelled} AS TIMESTAMP)', zone))} END"
    return f"CASE WHEN regexp_full_match({text}, '{_ISO}') THEN {time} END"


def label_of(field: Field, table: Table, path: str, *, own: bool) -> str:
    """The code of a label; null where the value is none. A null is a withdrawal, in a table of scores no label yet."""
    null, sql = 0 if own else 1, field.sql
    if field.kind == "boolean":
        return f"CASE WHEN {sql} IS NULL THEN {null} WHEN {sql} THEN 3 ELSE 2 END"
    if field.kind in _NUMBERS:
        none = f"{sql} IS NULL" + (f" OR isnan({sql})" if own and field.kind == "float" else "")
        return f"CASE WHEN {none} THEN {null} WHEN {sql} = 1 THEN 3 WHEN {sql} = 0 THEN 2 END"
    if field.kind == "text":
        return f"CASE WHEN {sql} IS NULL THEN {null} WHEN {sql} = '1' THEN 3 WHEN {sql} = '0' THEN 2 END"
    if field.kind == "cell":
        # An empty cell is null here: of a label it says nothing, of a score that has none yet it says that.
        empty = f"WHEN {sql} IS NULL OR {sql} = '' THEN 0" if own else ""
        number = number_of_text(field)
        return (
            f"CASE {empty} WHEN {sql} = 'true' OR {number} = 1 THEN 3 WHEN {sql} = 'false' OR {number} = 0 THEN 2"
            f" WHEN {sql} = 'null' THEN {null} END"
        )
    if field.kind == "json":
        kind, text = f"json_type({sql})", f"json_extract_string({sql}, '$')"
        number = f"{kind} IN {_JSON_NUMBERS} AND CAST({sql} AS DOUBLE)"
        return (
            f"CASE WHEN {is_absent(field)} THEN {null}"
            f" WHEN ({kind} = 'BOOLEAN' AND {text} = 'true') OR ({kind} = 'VARCHAR' AND {text} = '1')"
            f" OR ({number} = 1) THEN 3"
            f" WHEN ({kind} = 'BOOLEAN' AND {text} = 'false') OR ({kind} = 'VARCHAR' AND {text} = '0')"
            f" OR ({number} = 0) THEN 2 END"
        )
    raise _refused(table, path, "a label: that is 0, 1, true, false or null")
