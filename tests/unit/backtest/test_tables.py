"""Files as tables: their columns, what is wrong with them, and the same records in three formats."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow
import pytest
import zstandard
from pyarrow import csv, parquet

from stream_calib.backtest.tables.cells import cells_of_tables
from stream_calib.backtest.tables.columns import LabelColumns, ScoreColumns, Table, TimeColumn
from stream_calib.backtest.tables.duckdb_files import column_kind, connect, open_files, open_query, readable
from stream_calib.backtest.tables.engine import DuckDBEngine, Statement
from stream_calib.backtest.tables.fields import label_fields, score_fields
from stream_calib.config import Config
from stream_calib.errors import HistoryError
from stream_calib.events.contracts import ModelKey
from stream_calib.events.event_times import iso8601_ms

KEY = ModelKey("churn", "1")


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    return connect(threads=1)


def table_of(connection: duckdb.DuckDBPyConnection, **columns: Any) -> Table:
    connection.register("given", pyarrow.table(columns))
    connection.execute("CREATE OR REPLACE TABLE one AS SELECT * FROM given")
    return open_query(connection, "one")


RECORDS: list[dict[str, Any]] = [
    {"id": "007", "ts": 1_714_521_600_000, "p": 0.25, "carrier": "UA", "label": 1},
    {"id": "8", "ts": 1_714_521_600_001, "p": 0.75, "carrier": None, "label": 0},
    {"id": "9", "ts": 1_714_521_600_002, "p": 1.5, "carrier": "AA", "label": 0},
    {"id": "10", "ts": 1_714_521_600_003, "p": 0.5, "carrier": "AA", "label": 2},
    {"id": "11", "ts": 1_714_521_600_004, "p": 0.5, "carrier": "é", "label": None},
]


def test_three_formats_of_one_table_give_one_history(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    table = pyarrow.Table.from_pylist(RECORDS)
    parquet.write_table(table, tmp_path / "log.parquet")
    csv.write_csv(table, tmp_path / "log.csv")
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress((tmp_path / "log.csv").read_bytes()))
    (tmp_path / "bom.csv").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "log.csv").read_bytes().replace(b",", b";"))
    (tmp_path / "log.ndjson").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    config = Config.model_validate(
        {"model": {"name": "churn"}, "scores": {"attributes": {"carrier": "carrier"}}, "windows": {"horizon": "1h"}}
    )
    scores = ScoreColumns("p", TimeColumn("ts", "ms"), "id", groups={"carrier": "carrier"})
    histories = [
        cells_of_tables(
            DuckDBEngine(connection),
            open_files(connection, [tmp_path / name]),
            scores,
            None,
            LabelColumns("label", None),
            config,
            KEY,
        )
        for name in ("log.parquet", "log.csv", "log.csv.gz", "bom.csv", "log.ndjson")
    ]
    for history in histories:
        assert history.panes == histories[0].panes
        assert history.counts == {
            "rows": 5, "accepted": 4, "winners": 4, "labels": 2, "matched": 2,
            "scores_rejected_score_out_of_range": 1, "labels_rejected_label_invalid": 1,
        }  # fmt: skip
        assert set(history.signatures.values()) == {("UA",), ("__missing__",), ("AA",), ("é",)}


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        (pyarrow.array([True, False, None]), [3, 2, 1]),
        (pyarrow.array([1, 0, 2, None]), [3, 2, None, 1]),
        (pyarrow.array([1.0, 0.0, 0.5, None, float("nan")]), [3, 2, None, 1, None]),
        (pyarrow.array(["1", "0", "true", "", None]), [3, 2, None, None, 1]),
    ],
)
def test_labels_of_every_type(connection: duckdb.DuckDBPyConnection, values: Any, codes: list[int | None]) -> None:
    table = table_of(connection, id=["x"] * len(values), y=values, ts=[1] * len(values))
    fields = label_fields(table, LabelColumns("y", TimeColumn("ts", "ms"), "id"), KEY, own=False)
    assert connection.execute(f"SELECT code FROM (SELECT {fields.select} FROM one)").fetchall() == [(c,) for c in codes]


def test_labels_of_json_and_of_cells(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    spelled = ["1", "0", "true", "false", '"1"', '"true"', "0.0", "null", "[]", "2"]
    (tmp_path / "y.ndjson").write_text("".join(f'{{"id": "a", "ts": 1, "y": {text}}}\n' for text in spelled))
    cells = ["1", "0", "true", "false", "1.0", "True", "null", '""', "x"]
    (tmp_path / "y.csv").write_text("id,ts,y\n" + "".join(f"a,1,{text}\n" for text in cells))
    found = {}
    for name in ("y.ndjson", "y.csv"):
        table = open_files(connection, [tmp_path / name])
        fields = label_fields(table, LabelColumns("y", TimeColumn("ts", "ms"), "id"), KEY, own=False)
        sql = f"SELECT code FROM (SELECT {fields.select} FROM {table.sql})"
        found[name] = [code for (code,) in connection.execute(sql).fetchall()]
    assert found["y.ndjson"] == [3, 2, 3, 2, 3, None, 2, 1, None, None]
    assert found["y.csv"] == [3, 2, 3, 2, 3, None, 1, None, None]


def test_cells_that_are_no_numbers_are_rejected_not_the_file(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    (tmp_path / "log.csv").write_text("id,ts,p\na,1,0.5\nb,1,abc\nc,x,0.5\nd,1,\n")
    table = open_files(connection, [tmp_path / "log.csv"])
    fields = score_fields(table, ScoreColumns("p", TimeColumn("ts", "ms"), "id"), KEY)
    found = connection.execute(f"SELECT id, x, t FROM (SELECT {fields.select} FROM {table.sql})").fetchall()
    assert found == [("a", 0.5, 1), ("b", None, 1), ("c", 0.5, None), ("d", None, 1)]


TEXTS = [
    "2024-05-01",
    "2024-05-01T10:00",
    "2024-05-01 10:00:00.123456789+02:00",
    "2024-05-01T10:00:00,9999Z",
    "2024-05-01T10:00:00.9999999",
    "2024-05-01T10:00+0200",
    "2024-05-01t10:00:59-02",
    "2024-05-01T24:00",
    "2024-05-01T23:59:60",
    "2024-02-30",
    "2024-05-01T10",
    " 2024-05-01",
    "",
]


def times(connection: duckdb.DuckDBPyConnection, values: Any, unit: Any = "iso8601", zone: str = "UTC") -> list[Any]:
    table = table_of(connection, ts=values, p=[0.5] * len(values))
    fields = score_fields(table, ScoreColumns("p", TimeColumn("ts", unit), zone=zone), KEY)
    return [t for (t,) in connection.execute(f"SELECT t FROM (SELECT {fields.select} FROM one)").fetchall()]


def test_times_as_text_are_read_as_in_records(connection: duckdb.DuckDBPyConnection) -> None:
    assert times(connection, TEXTS) == [iso8601_ms(text) for text in TEXTS]


def test_times_of_every_type(connection: duckdb.DuckDBPyConnection) -> None:
    ms = 1_714_521_600_123
    naive = pyarrow.array([ms * 1000 + 999], pyarrow.timestamp("us"))
    zoned = pyarrow.array([ms], pyarrow.timestamp("ms", tz="America/New_York"))
    nanoseconds = pyarrow.array([ms * 1_000_000 + 999_999], pyarrow.timestamp("ns"))
    assert times(connection, naive) == times(connection, zoned) == times(connection, nanoseconds) == [ms]
    assert times(connection, pyarrow.array([19_844], pyarrow.date32())) == [19_844 * 86_400_000]
    assert times(connection, [ms / 1000], "s") == times(connection, [ms], "ms") == times(connection, [ms * 1000], "us")
    assert times(connection, [1_714_521_600.123], "s") == [ms]
    assert times(connection, [float("nan")], "s") == [None]
    four_hours = 4 * 3_600_000  # New York is four hours behind UTC in May
    assert times(connection, naive, zone="America/New_York") == [ms + four_hours]
    texts = ["2024-05-01T00:00:00.123", "2024-05-01T00:00:00.123Z"]
    assert times(connection, texts, zone="America/New_York") == [ms + four_hours, ms]
    with pytest.raises(HistoryError, match=r"'ts' is of type BIGINT.*say what its numbers count: seconds \(s\)"):
        times(connection, [ms])


def test_a_column_is_found_by_its_whole_name_or_its_path(connection: duckdb.DuckDBPyConnection) -> None:
    nested = pyarrow.array([{"p": {"x": 0.25}, "q": 1}])
    table = table_of(connection, **{"score": nested, "score.q": [7]})
    assert [table.field(path).kind for path in ("score", "score.p.x", "score.q")] == ["nested", "float", "integer"]
    sql = ", ".join(table.field(path).sql for path in ("score.p.x", "score.q"))
    assert connection.execute(f"SELECT {sql} FROM one").fetchall() == [(0.25, 7)]
    with pytest.raises(HistoryError, match=r"one: there is no column 'Score.P'\. Is 'score.p' meant\?"):
        table.field("Score.P")
    assert column_kind("DECIMAL(18,3)") == "decimal"
    assert column_kind("INTEGER[]") == "nested"
    assert column_kind("UBIGINT") == "integer"
    assert column_kind("BLOB") == "other"


def refusal(connection: duckdb.DuckDBPyConnection, *paths: Path | str) -> str:
    with pytest.raises(HistoryError) as refused:
        open_files(connection, paths)
    return str(refused.value)


def test_files_that_are_no_table_are_refused(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    whole = tmp_path / "whole.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(RECORDS), whole)
    (tmp_path / "half.parquet").write_bytes(whole.read_bytes()[:-40])
    (tmp_path / "empty.csv").touch()
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "log.csv").write_text("a,b\n1,2\n")
    (tmp_path / "text.csv.gz").write_text("a,b\n1,2\n")
    (tmp_path / "bad.ndjson").write_text('{"a": 1}\n{"a": \n')
    assert "half.parquet: Invalid Input Error: No magic bytes" in refusal(connection, tmp_path / "half.parquet")
    assert "its writing was not finished: write it again" in refusal(connection, tmp_path / "half.parquet")
    assert "empty.csv: is empty, it has not even a header" in refusal(connection, tmp_path / "empty.csv")
    assert "notes.txt: of no kind that is read here; name it .parquet" in refusal(connection, tmp_path / "notes.txt")
    assert "several kinds (csv, parquet)" in refusal(connection, whole, tmp_path / "log.csv")
    assert "text.csv.gz: IO Error: Input is not a GZIP stream" in refusal(connection, tmp_path / "text.csv.gz")
    assert "Each line must be one JSON object" in refusal(connection, tmp_path / "bad.ndjson")
    assert "nowhere.csv: cannot be read: No such file" in refusal(connection, tmp_path / "nowhere.csv")
    assert "*.pq: no file matches" in refusal(connection, tmp_path / "*.pq")
    assert "is a folder; name its files, as" in refusal(connection, tmp_path)
    assert refusal(connection) == "no files were given"
    with pytest.raises(HistoryError, match="no_such_table: Catalog Error"):
        open_query(connection, "no_such_table")


def test_members_that_later_objects_have_besides_are_no_fault(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    path = tmp_path / "log.ndjson"
    path.write_text('{"id": 1}\n' * 60_000 + '{"id": "2", "more": {"a": 1}}\n{}\n')
    table = open_files(connection, [path])
    assert connection.execute(f"SELECT count(*), count(id) FROM {table.sql}").fetchall() == [(60_002, 60_001)]


def test_a_row_of_another_number_of_cells_is_named(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("a,b\n" + "1,2\n" * 50_000 + "1,2,3\n")
    table = open_files(connection, [path])
    with pytest.raises(HistoryError, match=r"Line: 50002 .*Expected Number of Columns: 2 Found: 3. Quote cells"):
        DuckDBEngine(connection).rows(Statement(f"SELECT count(*) FROM {table.sql}", {"n": "integer"}), table.source)


def test_an_error_after_the_first_rows_names_the_table(connection: duckdb.DuckDBPyConnection) -> None:
    key = "CASE WHEN i = 299999 THEN error('broken row') ELSE 1 END::BIGINT AS key"
    statement = Statement(f"SELECT {key} FROM range(300000) AS rows(i)", {"key": "integer"})
    with pytest.raises(HistoryError, match=r"log: .*broken row"):
        DuckDBEngine(connection).counts(statement, "log")


@pytest.mark.parametrize("error", [duckdb.ConversionException, OSError, pyarrow.ArrowInvalid])
def test_whatever_ends_record_batches_names_the_table_and_says_what_helps(
    connection: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def batches(*_: Any) -> Iterator[pyarrow.RecordBatch]:
        yield pyarrow.RecordBatch.from_pydict({"key": [1]})
        raise error("Conversion Error: Could not convert string 'x' to INT64\n\nLINE 1: SELECT ...")

    monkeypatch.setattr("stream_calib.backtest.tables.engine.record_batches", batches)
    with pytest.raises(
        HistoryError, match=r"^log: .*Could not convert string 'x' to INT64\. The files give one column"
    ):
        DuckDBEngine(connection).counts(Statement("SELECT 1", {"key": "integer"}), "log")


def test_columns_of_a_configuration(connection: duckdb.DuckDBPyConnection) -> None:
    config = Config.model_validate({"model": {"name": "churn"}, "windows": {"horizon": "1h"}})
    with pytest.raises(HistoryError, match=r"scores\.time\.path is not set"):
        ScoreColumns.of(config, KEY)
    with pytest.raises(HistoryError, match=r"labels\.time\.path is not set"):
        LabelColumns.of(config)
    several = Config.model_validate(
        {
            "models": [{"name": "fraud", "score": "f", "scale": "logit"}, {"name": "abuse", "score": "a"}],
            "scores": {"time": {"path": "ts", "unit": "s"}},
            "windows": {"horizon": "1h"},
        }
    )
    found = ScoreColumns.of(several, ModelKey("fraud", "1"))
    assert (found.score, found.scale, found.time) == ("f", "logit", TimeColumn("ts", "s"))
    with pytest.raises(HistoryError, match="no score of churn/1; there are: fraud/1, abuse/1"):
        ScoreColumns.of(several, KEY)


def test_rows_of_other_models_are_left_out(connection: duckdb.DuckDBPyConnection) -> None:
    table = table_of(
        connection, id=["a", "b", "c"], ts=[1_714_521_600_000] * 3, p=[0.5] * 3, m=["churn", "fraud", None], y=[1, 1, 1]
    )
    config = Config.model_validate({"model": {"name": "churn"}, "windows": {"horizon": "1h"}})
    columns = ScoreColumns("p", TimeColumn("ts", "ms"), "id", model="m")
    engine = DuckDBEngine(connection)
    history = cells_of_tables(engine, table, columns, None, LabelColumns("y", None), config, KEY)
    assert history.counts == {
        "rows": 3,
        "accepted": 1,
        "scores_other_model": 2,
        "winners": 1,
        "labels": 1,
        "matched": 1,
    }


def test_nan_of_parquet_is_seen_whatever_its_statistics_say(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    nan = float("nan")
    columns = {"ts": [1_714_521_600_000] * 4, "p": [0.1, nan, 0.4, 0.2], "label": [0.0, 1.0, nan, 1.0]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "nan.parquet")
    table = open_files(connection, [tmp_path / "nan.parquet"])
    scores = score_fields(table, ScoreColumns("p", TimeColumn("ts", "ms")), KEY)
    labels = label_fields(table, LabelColumns("label", None), KEY, own=True)

    def counted(select: str, what: str) -> dict[Any, int]:
        sql = f"SELECT {what} AS found, count(*) FROM (SELECT {select} FROM {table.sql}) GROUP BY found"
        return dict(connection.execute(sql).fetchall())

    assert counted(scores.select, scores.refusal) == {None: 3, "score_invalid": 1}
    assert counted(labels.select, "code") == {0: 1, 2: 1, 3: 2}
    good = f"SELECT count(*) FROM (SELECT {scores.select} FROM {table.sql}) WHERE {scores.good}"
    assert connection.execute(good).fetchall() == [(3,)]


def test_what_duckdb_would_read_without_a_word_is_refused(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    packed = zstandard.compress(b"id,p\n" + b"".join(b"%d,.%d\n" % (i, i) for i in range(1000)))
    (tmp_path / "whole.csv.zst").write_bytes(packed)
    assert list(open_files(connection, [tmp_path / "whole.csv.zst"]).fields) == ["id", "p"]
    (tmp_path / "cut.csv.zst").write_bytes(packed[:-20])
    cut = refusal(connection, tmp_path / "cut.csv.zst")
    assert cut.endswith("cut.csv.zst: cannot be unpacked: the file ends within a frame of Zstandard; write it again")
    (tmp_path / "twice.csv").write_text("p,id,p\n.1,a,.2\n")
    (tmp_path / "array.json").write_text('[{"id": "a", "p": 0.1}]')
    assert "array.json: its lines are no objects" in refusal(connection, tmp_path / "array.json")
    assert "twice.csv: it has several columns 'p'" in refusal(connection, tmp_path / "twice.csv")


def test_a_quoted_cell_may_have_a_line_break(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    (tmp_path / "two-lines.csv").write_text('id,p,region\na,.1,\nb,.2,"two\nlines"\nc,.3,\n')
    table = open_files(connection, [tmp_path / "two-lines.csv"])
    assert list(table.fields) == ["id", "p", "region"]


@pytest.mark.parametrize("error", [duckdb.InterruptException("INTERRUPT Error"), RuntimeError("Query interrupted")])
def test_ctrl_c_in_a_query_is_ctrl_c(error: Exception) -> None:
    with pytest.raises(KeyboardInterrupt), readable("a.csv"):
        raise error
    with pytest.raises(RuntimeError, match="another"), readable("a.csv"):
        raise RuntimeError("another")
