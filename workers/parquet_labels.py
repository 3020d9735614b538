"""A Parquet file of labels as record values. Needs pyarrow, the extra `files`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from stream_calib.config_records import LabelsSection
from stream_calib.errors import ConfigurationError

_ROWS_A_BATCH = 5_000


def parquet_rows(path: Path, labels: LabelsSection) -> Iterator[tuple[int, float, bytes]]:
    """Number of the row from 1, share of the rows that is read with it, and the value of its record: the columns that
    [labels] names, no others, by their types.

    Times are ISO 8601, those of a column without a zone without an offset; a null is null. Raises ConfigurationError
    where pyarrow is missing, the file cannot be read, or it has no such columns.
    """
    try:
        import pyarrow
        from pyarrow import compute, parquet
    except ImportError as error:
        raise ConfigurationError(
            f"{path}: Parquet is read with pyarrow, which is not there ({error}): `pip install stream-calib[files]`, or"
            " convert the file to CSV or NDJSON"
        ) from error
    row = 0
    try:
        with parquet.ParquetFile(path) as file:
            columns, total = _columns(path, file.schema_arrow.names, labels), file.metadata.num_rows
            for batch in file.iter_batches(_ROWS_A_BATCH, columns=columns):
                # A datetime has no nanoseconds, and the time of a label none below the millisecond.
                read = [
                    compute.cast(column, pyarrow.timestamp("ms", column.type.tz), safe=False)
                    if pyarrow.types.is_timestamp(column.type)
                    else column
                    for column in batch.columns
                ]
                names = batch.schema.names
                for values in zip(*(column.to_pylist() for column in read), strict=True):
                    row += 1
                    value = json.dumps(dict(zip(names, values, strict=True)), separators=(",", ":"), default=_json)
                    yield row, row / total, value.encode()
    # Its errors are ValueError or OSError too, those of values that JSON has no form for TypeError.
    except (pyarrow.ArrowException, OSError, ValueError, TypeError) as error:
        raise ConfigurationError(f"{path}: cannot be read on after row {row}: {error}") from error


def _columns(path: Path, names: list[str], labels: LabelsSection) -> list[str]:
    """Of the file: a path is the name of a column, or leads into one of structs."""
    found: dict[str, None] = {}
    for wanted, needed in (
        (labels.id, True),
        (labels.label, True),
        (labels.time.path, True),
        (labels.model, False),
    ):
        if wanted is None:
            continue
        column = wanted if wanted in names else wanted.split(".")[0]
        if names.count(column) == 1:
            found[column] = None
        elif needed or column in names:
            raise ConfigurationError(
                f"{path}: it has {'several columns' if column in names else 'no column'} {wanted!r}; the columns are"
                " named as the paths of [labels]"
            )
    return list(found)


def _json(value: Any) -> Any:
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    raise TypeError(f"a value of the type {type(value).__name__} cannot be a field of a label: {value!r:.100}")
