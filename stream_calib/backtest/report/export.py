"""The result of a backtest as Parquet files, for programs. Needs pyarrow, the extra `files`.

Every column has a description in its field's metadata, every file the model and the source in its own.
"""

from __future__ import annotations

import os
from pathlib import Path

from stream_calib.backtest.document import BacktestDocument
from stream_calib.backtest.report.choice import chosen
from stream_calib.backtest.report.export_tables import TABLES
from stream_calib.errors import BacktestError


def export_parquet(document: BacktestDocument, folder: Path) -> list[Path]:
    """Writes each of TABLES as a file into the folder, which is made; returns their paths.

    A file of the same name is replaced, whole or not at all. The same document gives the same bytes with the same
    pyarrow. Raises BacktestError where pyarrow is missing, a file cannot be written, or the document lacks a policy
    that it speaks of.
    """
    chosen(document)
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise BacktestError(
            f"{folder}: Parquet is written with pyarrow, which is not there ({error}):"
            " `pip install stream-calib[files]`, or use --json"
        ) from error
    types = {
        "string": pyarrow.string(),
        "int64": pyarrow.int64(),
        "double": pyarrow.float64(),
        "bool": pyarrow.bool_(),
        "date": pyarrow.date32(),
        "time": pyarrow.timestamp("ms", "UTC"),
        "strings": pyarrow.list_(pyarrow.string()),
    }
    about = {"model": document.model, "model_version": document.model_version, "source": document.source}
    written = []
    try:
        os.makedirs(os.path.realpath(folder), exist_ok=True)
        for name, table in TABLES.items():
            schema = pyarrow.schema(
                [pyarrow.field(c.name, types[c.kind], metadata={"description": c.says}) for c in table.columns], about
            )
            rows = table.rows(document)
            columns = zip(*rows, strict=True) if rows else ([] for _ in table.columns)
            arrays = [
                pyarrow.array(list(values), types[column.kind])
                for column, values in zip(table.columns, columns, strict=True)
            ]
            path = folder / f"{name}.parquet"
            unfinished = path.with_name(f".{path.name}.{os.getpid()}")
            try:
                parquet.write_table(pyarrow.Table.from_arrays(arrays, schema=schema), unfinished)
                unfinished.replace(path)
            finally:
                unfinished.unlink(missing_ok=True)
            written.append(path)
    except OSError as error:
        raise BacktestError(f"{folder}: the result cannot be written as Parquet: {error}") from error
    return written
