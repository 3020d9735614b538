"""Columns of files give the rows and rejects that the live decoders make of the same rows as JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from stream_calib.backtest.files.reading import SideFiles
from stream_calib.backtest.files.reading_labels import LabelReader
from stream_calib.backtest.files.reading_lines import LabelLines, ScoreLines
from stream_calib.backtest.files.reading_names import data_files
from stream_calib.backtest.files.reading_rows import Read, Signatures
from stream_calib.backtest.files.reading_scores import ScoreReader
from stream_calib.backtest.files.reading_values import json_value, typed_cell
from stream_calib.backtest.tables.duckdb_files import connect
from stream_calib.config import Config
from stream_calib.events.contracts import ModelKey
from tests.unit.events.events_for_tests import T0, config

KEY = ModelKey("m", "1")
ROWS = 8
Accepted = list[tuple[Any, ...]]
Rejected = list[tuple[int, str, str]]


@pytest.fixture(scope="module")
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    with connect(threads=1) as connection:
        yield connection


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


# --- both ways of reading


def of_columns(path: Path, side: str, settings: Config, engine: duckdb.DuckDBPyConnection) -> tuple[Accepted, Rejected]:
    reads: list[Read] = []
    signatures = Signatures()
    reader: Any = ScoreReader(settings, KEY, signatures) if side == "s" else LabelReader(settings, KEY)
    read = reader.read

    def noted(n: int, columns: Any) -> Read:
        reads.append(read(n, columns))
        return reads[-1]

    reader.read = noted
    files = SideFiles(data_files([path], []), engine.cursor, reader, reader, 1_000_000)
    list(files.rows())
    assert len(reads) == 1
    return as_tuples(reads[0], side, signatures)


def of_lines(rows: Sequence[dict[str, Any]], side: str, settings: Config) -> tuple[Accepted, Rejected]:
    signatures = Signatures()
    reader: Any = ScoreLines(settings, KEY, signatures) if side == "s" else LabelLines(settings, KEY)
    return as_tuples(reader.read([json.dumps(row).encode() for row in rows]), side, signatures)


def as_tuples(read: Read, side: str, signatures: Signatures) -> tuple[Accepted, Rejected]:
    rejected = [(reject.record_index, reject.reason.value, reject.message) for reject in read.rejects]
    if side == "l":
        return [tuple(row) for row in read.rows.tolist()], rejected
    hashes, values = signatures.hashes(read.rows["signature"].copy())
    accepted = []
    for (time_ms, fingerprint, score, _, bucket, own), hashed in zip(read.rows.tolist(), hashes.tolist(), strict=True):
        # Of another model only time and identity count.
        accepted.append((time_ms, fingerprint, *((score, values[hashed], bucket) if own else ()), own))
    return accepted, rejected


# --- columns of one type, as Parquet has them

TEXTS = st.sampled_from(["a", "é", "AA", "x" * 513, "é" * 300, "", " 7", "7", "0", "1", "true", "m", "v 2"])
PROBABILITIES = st.sampled_from([0.0, -0.0, 0.25, 1.0, 1 + 5e-7, -5e-7, 1.1, -3.0, 0.1, 1e300, 5e-324])
DECIMALS = st.sampled_from([Decimal(text) for text in ("0.10", "1.00", "0.07", "0.29", "0.00", "2.50")])
TIMES = ["2024-05-01", "2024-05-01T10:00:00Z", "2024-05-01 10:00:00.1234", "2024-02-30T00:00:00", "1999-12-31", "soon"]


def mostly(good: st.SearchStrategy[Any], other: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A record has many fields and is refused for one that is bad, so most must be good."""
    return st.sampled_from([*[good] * 11, other]).flatmap(lambda chosen: chosen)


def column_of(values: st.SearchStrategy[Any], type_: Any) -> st.SearchStrategy[pyarrow.Array]:
    some = st.lists(mostly(values, st.none()), min_size=ROWS, max_size=ROWS)
    return some.map(lambda chosen: pyarrow.array(chosen, type=type_))


ANY_COLUMN = st.one_of(
    column_of(TEXTS, pyarrow.string()),
    column_of(st.integers(-2, 2), pyarrow.int8()),
    column_of(st.integers(0, 2**64 - 1), pyarrow.uint64()),
    column_of(PROBABILITIES, pyarrow.float64()),
    column_of(st.sampled_from([0.1, 1.0, 0.5]), pyarrow.float32()),
    column_of(DECIMALS, pyarrow.decimal128(12, 2)),
    column_of(st.booleans(), pyarrow.bool_()),
    column_of(st.just([1]), pyarrow.list_(pyarrow.int64())),
)


def column(*good: st.SearchStrategy[pyarrow.Array]) -> st.SearchStrategy[pyarrow.Array]:
    return mostly(st.one_of(*good), ANY_COLUMN)


GOOD_TEXTS = st.text(alphabet="abcé 1", min_size=1, max_size=9)
IDS = column(
    column_of(mostly(GOOD_TEXTS, TEXTS), pyarrow.string()),
    column_of(st.integers(-(2**63), 2**63 - 1), pyarrow.int64()),
)
SCORES = column(
    column_of(mostly(st.floats(0, 1), PROBABILITIES), pyarrow.float64()),
    column_of(DECIMALS, pyarrow.decimal128(12, 2)),
)
RATES = column(column_of(st.sampled_from([0.25, 0.5, 1.0]), pyarrow.float64()))
LABELS = column(
    column_of(st.integers(0, 1), pyarrow.int64()),
    column_of(st.sampled_from(["0", "1", "yes", "", "true"]), pyarrow.string()),
)
NAMES = column(column_of(mostly(st.just("m"), st.sampled_from(["n", "bad name", ""])), pyarrow.string()))
VERSIONS = column(column_of(mostly(st.just("1"), st.sampled_from(["2", ""])), pyarrow.string()))
TIME_COLUMNS = {
    "ms": column(column_of(st.integers(T0, T0 + 1_000), pyarrow.int64())),
    "us": column(column_of(st.integers(T0 * 1_000, T0 * 1_000 + 9_999), pyarrow.uint64())),
    "s": column(column_of(mostly(st.floats(T0 / 1_000, T0 / 500), st.just(1e300)), pyarrow.float64())),
    "iso8601": column(column_of(st.sampled_from(TIMES), pyarrow.string())),
}
STRUCTS = st.lists(
    st.one_of(st.none(), st.fixed_dictionaries({"in": st.one_of(st.none(), st.integers(-1, 2))})),
    min_size=ROWS,
    max_size=ROWS,
).map(lambda values: pyarrow.array(values, type=pyarrow.struct([("in", pyarrow.int64())])))


def as_json(table: dict[str, pyarrow.Array]) -> list[dict[str, Any]]:
    columns = {name: [json_value(value) for value in array.to_pylist()] for name, array in table.items()}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def without_types(rejected: Rejected) -> Rejected:
    """Lists are shown by their type, where JSON has arrays."""
    return [(i, reason, message.replace("a value of the type BIGINT[]", "an array")) for i, reason, message in rejected]


def same_both_ways(
    table: dict[str, pyarrow.Array], side: str, settings: Config, path: Path, engine: duckdb.DuckDBPyConnection
) -> None:
    parquet.write_table(pyarrow.table(table), path)

    accepted, rejected = of_columns(path, side, settings, engine)

    assert (accepted, without_types(rejected)) == of_lines(as_json(table), side, settings)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_scores_of_parquet_are_those_of_the_decoder(
    data: st.DataObject, engine: duckdb.DuckDBPyConnection, folder: Path
) -> None:
    several, unit = data.draw(st.booleans()), data.draw(st.sampled_from(sorted(TIME_COLUMNS)))
    scores: dict[str, Any] = {
        "scale": data.draw(st.sampled_from(["probability", "probability", "logit", "percent"])),
        "time": {"path": "ts", "unit": unit},
        "attributes": {"a": "a", "b": "b", "deep": "box.in"},
        "max_value_bytes": 20,
        "unit": data.draw(st.sampled_from([None, "who"])),
        "keep_rate": data.draw(st.sampled_from([None, "rate"])),
        "sample_rate": data.draw(st.sampled_from([1.0, 0.5])),
    }
    models: dict[str, Any] = {"model": {"name_path": "of", "version_path": "of_version"}}
    if several:
        models = {"models": [{"name": "n", "score": "box.in"}, {"name": "m", "score": "score"}]}
    table = {
        "event_id": data.draw(IDS),
        "ts": data.draw(TIME_COLUMNS[unit]),
        "score": data.draw(SCORES),
        "a": data.draw(ANY_COLUMN),
        "b": data.draw(column_of(TEXTS, pyarrow.string())),
        "box": data.draw(STRUCTS),
        "who": data.draw(IDS),
        "rate": data.draw(RATES),
        "of": data.draw(NAMES),
        "of_version": data.draw(VERSIONS),
    }

    same_both_ways(table, "s", config(scores=scores, **models), folder / "scores.parquet", engine)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_labels_of_parquet_are_those_of_the_decoder(
    data: st.DataObject, engine: duckdb.DuckDBPyConnection, folder: Path
) -> None:
    unit = data.draw(st.sampled_from(sorted(TIME_COLUMNS)))
    labels = {
        "label": data.draw(st.sampled_from(["label", "box.in"])),
        "model": data.draw(st.sampled_from([None, "of", "box.in"])),
        "time": {"path": "ts", "unit": unit},
        "time_granularity": data.draw(st.sampled_from(["1ms", "1d"])),
    }
    table = {
        "event_id": data.draw(IDS),
        "ts": data.draw(TIME_COLUMNS[unit]),
        "label": data.draw(LABELS),
        "box": data.draw(STRUCTS),
        "of": data.draw(NAMES),
    }

    same_both_ways(table, "l", config(labels=labels), folder / "labels.parquet", engine)


# --- cells of CSV, which have no types

CELLS = st.sampled_from(
    [
        "",
        "a",
        "7",
        "007",
        "-0",
        "0.5",
        ".5",
        "1.",
        "+1",
        "1e-3",
        "1E5",
        "NaN",
        "inf",
        "true",
        "false",
        "null",
        "True",
        "é, x",
        'say "no"',
        "two\nlines",
        " 1",
        "0",
        "1",
        "1.0",
        f"{T0}",
        f"{T0}.7",
        "2024-05-01T10:00:00,5+02:00",
        "m",
    ]
)


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_cells_of_csv_are_those_of_the_decoder(
    data: st.DataObject, engine: duckdb.DuckDBPyConnection, folder: Path
) -> None:
    side, unit = data.draw(st.sampled_from("sl")), data.draw(st.sampled_from(["ms", "s", "iso8601"]))
    time = {"path": "ts", "unit": unit}
    scores = {"time": time, "attributes": {"a": "a"}, "unit": "who", "keep_rate": "rate"}
    typed = {"score", "rate", "label", *({"ts"} if unit != "iso8601" else ())}
    names = ["event_id", "ts", "score", "label", "a", "who", "rate", "of"]
    likely = {"event_id": "a", "ts": f"{T0}", "score": "0.5", "label": "1"}
    cells = [st.one_of(CELLS, st.just(likely[name])) if name in likely else CELLS for name in names]
    rows = data.draw(st.lists(st.tuples(*cells), min_size=ROWS, max_size=ROWS))
    text = io.StringIO(newline="")
    csv.writer(text).writerows([names, *rows])
    path = folder / "rows.csv"
    path.write_text(text.getvalue(), encoding="utf-8", newline="")
    objects = [
        {name: typed_cell(cell) if name in typed else cell for name, cell in zip(names, row, strict=True) if cell}
        for row in rows
    ]
    chosen = config(scores=scores, labels={"time": time, "model": "of"})

    assert of_columns(path, side, chosen, engine) == of_lines(objects, side, chosen)
