"""Columns of a table's rows, read as the decoders read the fields of records.

What is plainly good is read as arrays. All else is handed, value by value, to the very functions that read the fields
of records, as the value that it would be in JSON; so the rules, reasons and messages are theirs.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream_calib.backtest.files.reading_times import NO_TIME, iso_milliseconds
from stream_calib.config_models import ScoreScale
from stream_calib.events.columns import ABSENT, Failures
from stream_calib.events.contracts import MAX_EVENT_TIME_MS, MIN_EVENT_TIME_MS
from stream_calib.events.event_ids import MAX_ID_BYTES, read_ids
from stream_calib.events.event_times import TimeUnit, milliseconds, read_times
from stream_calib.events.model_scores import SCORE_TOLERANCE, read_scores, scaled

CellKind: TypeAlias = Literal["text", "cell", "number", "decimal", "boolean", "instant", "unusable"]
"""What an array holds: `cell` is text of a CSV file that may be a number, `instant` a date or timestamp,
`unusable` true where there is a value that no field can have."""

Role: TypeAlias = Literal["text", "name", "number", "time"]
"""What a column is for: `text` may be of a number, `name` only of text."""


class Wanted(NamedTuple):
    """A column to be read."""

    path: str
    role: Role
    required: bool = True
    """False: a file may be without it."""


_JSON_NUMBER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?"
_JSON_SCALAR = re.compile(_JSON_NUMBER + "|true|false|null")
_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}
_UNITS_A_MS = {"s": 1e-3, "ms": 1.0, "us": 1e3, "ns": 1e6}
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Column:
    """The values of n rows at one path."""

    path: str
    kind: CellKind
    array: Any
    """pyarrow.Array (n,)"""
    type: str
    """Of the column, as the engine calls it."""
    absent: NDArray[np.bool_] | None
    """(n,) where a record would have no such field, which is not the same as null; None: nowhere."""

    def values(self, rows: NDArray[np.intp]) -> list[Any]:
        """The values of these rows as a JSON decoder would give them."""
        import pyarrow

        found = [self._value(value) for value in self.array.take(pyarrow.array(rows)).to_pylist()]
        if self.absent is None:
            return found
        return [ABSENT if gone else value for value, gone in zip(found, self.absent[rows].tolist(), strict=True)]

    def _value(self, value: Any) -> Any:
        if value is None:
            return None
        if self.kind == "unusable":
            return _Unusable(self.type)
        return json_value(value)

    def distinct(self) -> tuple[NDArray[np.intp], list[Any]]:
        """Index (n,) into the distinct values, and these as a JSON decoder would give them; null and absent are among
        them where a row has them."""
        encoded = self.array.dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.intp)
        values = [self._value(value) for value in encoded.dictionary.to_pylist()]
        nulls = codes < 0
        if nulls.any():
            codes[nulls] = len(values)
            values.append(None)
            if self.absent is not None and self.absent.any():
                codes[self.absent] = len(values)
                values.append(ABSENT)
        return codes, values


Columns: TypeAlias = Mapping[tuple[str, Role], Column]
"""By path, and what it is for."""


class _Unusable:
    """Stands for a value of a type that no field can have."""

    def __init__(self, type_text: str) -> None:
        self._type = type_text

    def __repr__(self) -> str:
        return f"a value of the type {self._type}"


def json_value(value: Any) -> Any:
    """What a value of a column is in JSON. A number that is not finite, which JSON does not have, becomes text."""
    if isinstance(value, Decimal):
        value = int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return _NOT_FINITE.get(value, "NaN")
    return value


def typed_cell(cell: Any) -> Any:
    """A cell of CSV that is a JSON number, true, false or null as that; another one stays text, for the decoder to
    judge, and so does a number of more digits than Python reads."""
    try:
        return json.loads(cell) if isinstance(cell, str) and _JSON_SCALAR.fullmatch(cell) else cell
    except ValueError:
        return cell


def texts_of(array: Any) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of a pyarrow.StringArray (n,) and where each text begins in them, (n + 1,); nulls are of no length."""
    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, dtype=np.int32, count=len(array) + 1, offset=4 * array.offset)
    content = np.empty(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
    return content, places.astype(np.int64)


def encoded(array: Any) -> list[bytes]:
    """The texts of a pyarrow.StringArray (n,) as UTF-8."""
    import pyarrow

    found: list[bytes] = array.cast(pyarrow.binary()).to_pylist()
    return found


def ids_of(column: Column) -> tuple[Any, Failures]:
    """The ids as pyarrow.StringArray (n,) ("" where refused), and what is refused."""
    import pyarrow
    from pyarrow import compute

    rows = np.arange(len(column.array))
    if column.kind == "text":
        lengths = np.diff(texts_of(column.array)[1])
        rows = np.flatnonzero((lengths == 0) | (lengths > MAX_ID_BYTES))
        if not len(rows):
            return column.array, {}
    texts, failures = read_ids(column.values(rows), column.path)
    ids = pyarrow.array(texts, pyarrow.string())
    if len(rows) < len(column.array):
        mask = np.zeros(len(column.array), dtype=bool)
        mask[rows] = True
        ids = compute.replace_with_mask(column.array, pyarrow.array(mask), ids)
    return ids, at_rows(failures, rows)


def scores_of(column: Column, scale: ScoreScale) -> tuple[NDArray[np.float64], NDArray[np.bool_], Failures]:
    """As `model_scores.read_scores`; absent values are refused."""
    numbers, bad = _numbers(column)
    score, distance = scaled(numbers, scale)
    rows = np.flatnonzero(bad | (distance > SCORE_TOLERANCE))
    _, _, failures = read_scores(_typed(column, rows), scale, column.path)
    return score, distance > 0, at_rows(failures, rows)


def times_of(column: Column, unit: TimeUnit) -> tuple[NDArray[np.int64], Failures]:
    """As `event_times.read_times`. Dates and timestamps are times whatever the unit: those without a zone are UTC."""
    if column.kind == "instant":
        unit = "ms"
        times, bad = _instants(column.array)
    elif unit != "iso8601":
        numbers, bad = _numbers(column)
        times = milliseconds(numbers, unit)
    elif column.kind in ("text", "cell"):
        times = iso_milliseconds(*texts_of(column.array))
        bad = times == NO_TIME
    else:
        times, bad = np.zeros(len(column.array), dtype=np.int64), np.ones(len(column.array), dtype=bool)
    outside = (times < MIN_EVENT_TIME_MS) | (times >= MAX_EVENT_TIME_MS)
    rows = np.flatnonzero(bad | outside)
    if column.kind == "instant":
        values = [None if missing else ms for missing, ms in zip(bad[rows].tolist(), times[rows].tolist(), strict=True)]
    else:
        values = column.values(rows) if unit == "iso8601" else _typed(column, rows)
    _, failures = read_times(values, unit, column.path)
    return times, at_rows(failures, rows)


def by_value(
    column: Column, read: Callable[[Sequence[Any]], tuple[NDArray[Any], Failures]]
) -> tuple[NDArray[Any], Failures]:
    """What `read` makes of the values, of which it is given each distinct one once; cells are typed before."""
    codes, values = column.distinct()
    found, failures = read([typed_cell(v) for v in values] if column.kind == "cell" else values)
    refused: Failures = {}
    if failures:
        bad = np.zeros(len(values), dtype=bool)
        bad[list(failures)] = True
        rows = np.flatnonzero(bad[codes])
        refused = dict(zip(rows.tolist(), map(failures.__getitem__, codes[rows].tolist()), strict=True))
    return found[codes], refused


def at_rows(failures: Failures, rows: NDArray[np.intp]) -> Failures:
    """Failures of a list of values by the row of each value."""
    return {int(rows[i]): why for i, why in failures.items()}


def _typed(column: Column, rows: NDArray[np.intp]) -> list[Any]:
    values = column.values(rows)
    return [typed_cell(value) for value in values] if column.kind == "cell" else values


def _numbers(column: Column) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The JSON numbers as float64 (n,), and which rows (n,) hold none; these hold NaN."""
    import pyarrow
    from pyarrow import compute

    array = column.array
    if column.kind == "cell":
        matched = compute.match_substring_regex(array, f"^({_JSON_NUMBER})$").fill_null(False)
        array = compute.if_else(matched, array, pyarrow.scalar(None, pyarrow.string())).cast(pyarrow.float64())
    elif column.kind == "decimal":
        # By its text: the quotient of two float64 is not always the nearest to the decimal.
        array = array.cast(pyarrow.string()).cast(pyarrow.float64())
    elif column.kind != "number":
        return np.full(len(array), np.nan), np.ones(len(array), dtype=bool)
    numbers = array.cast(pyarrow.float64(), safe=False).fill_null(math.nan).to_numpy(zero_copy_only=False)
    return numbers, ~np.isfinite(numbers)


def _instants(array: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Epoch milliseconds (n,) int64 of dates and timestamps, cut, and which rows (n,) are null."""
    import pyarrow

    missing = array.is_null().to_numpy(zero_copy_only=False)
    if pyarrow.types.is_date(array.type):
        days = array.cast(pyarrow.date32()).cast(pyarrow.int32()).fill_null(0).to_numpy(zero_copy_only=False)
        return days.astype(np.int64) * _DAY_MS, missing
    ticks = array.cast(pyarrow.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    a_ms = _UNITS_A_MS[array.type.unit]
    return ticks // int(a_ms) if a_ms >= 1 else ticks * round(1 / a_ms), missing
