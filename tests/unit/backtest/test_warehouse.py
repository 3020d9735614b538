"""Cells made inside an engine equal those of the join in memory, byte for byte, where nothing is late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.tables.cells import UnitBuckets, cells_of_tables
from stream_calib.backtest.tables.columns import LabelColumns, ScoreColumns, TimeColumn
from stream_calib.backtest.tables.difference import difference_by_reason
from stream_calib.backtest.tables.duckdb_files import connect, open_query
from stream_calib.backtest.tables.engine import DuckDBEngine, Statement
from stream_calib.backtest.tables.grid import BIN_SQL, bin_of, estimate_sql, grid_table
from stream_calib.backtest.tables.ibis_tables import IbisEngine
from stream_calib.backtest.tables.tally import Counted
from stream_calib.calibration.grid import locate
from stream_calib.config import Config
from stream_calib.config_models import ScoreScale
from stream_calib.errors import HistoryError
from stream_calib.events.contracts import ModelKey
from tests.unit.backtest.table_worlds import LabelRow, ScoreRow, as_in_the_state, joined

KEY = ModelKey("churn", "1")
START_MS = 1_714_521_600_000
HOUR_MS = 3_600_000
HORIZON_MS = 2 * HOUR_MS


def config(**windows: Any) -> Config:
    return Config.model_validate(
        {
            "model": {"name": "churn"},
            "scores": {
                "id": "id",
                "time": {"path": "ts"},
                "attributes": {"carrier": "carrier", "origin": "origin"},
                **windows.pop("scores", {}),
            },
            "labels": {"id": "id", "time": {"path": "ts"}},
            "windows": {"horizon": "2h", **windows},
        }
    )


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    return connect(threads=2)


def put(
    connection: duckdb.DuckDBPyConnection, name: str, rows: Sequence[Any], types: dict[str, pyarrow.DataType]
) -> None:
    columns = zip(*rows, strict=True) if rows else [[] for _ in types]
    table = pyarrow.table({n: pyarrow.array(list(c), t) for (n, t), c in zip(types.items(), columns, strict=True)})
    connection.register("given", table)
    connection.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM given")


TEXT, WHOLE, DOUBLE = pyarrow.string(), pyarrow.int64(), pyarrow.float64()
SCORE_TYPES = {"id": TEXT, "ts": WHOLE, "score": DOUBLE, "carrier": TEXT, "origin": TEXT, "customer": TEXT}
LABEL_TYPES = {"id": TEXT, "ts": WHOLE, "label": WHOLE}


def counted(
    connection: duckdb.DuckDBPyConnection,
    scores: Sequence[ScoreRow],
    labels: Sequence[LabelRow],
    used: Config,
    buckets: UnitBuckets = "exact",
) -> CellHistory:
    put(connection, "scores", scores, SCORE_TYPES)
    put(connection, "labels", labels, LABEL_TYPES)
    return cells_of_tables(
        DuckDBEngine(connection),
        open_query(connection, "scores"),
        ScoreColumns.of(used, KEY),
        open_query(connection, "labels"),
        LabelColumns.of(used),
        used,
        KEY,
        buckets=buckets,
    )


times = st.integers(0, 7).map(lambda step: START_MS + step * HOUR_MS // 2)
ids = st.integers(0, 5).map(lambda number: f"id-{number}")
values = st.sampled_from(["UA", "AA", "", None, "B6"])
score_rows = st.builds(
    ScoreRow, ids, times, st.sampled_from([0.0, 0.2, 0.5, 1.0]), values, values, st.sampled_from([None, "c1", "c2"])
)
label_rows = st.builds(LabelRow, ids, times, st.sampled_from([None, 0, 1]))


@settings(max_examples=40, deadline=None)
@given(
    scores=st.lists(score_rows, min_size=1, max_size=14),
    labels=st.lists(label_rows, max_size=10),
    by_unit=st.booleans(),
    negative=st.booleans(),
)
def test_cells_of_tables_are_those_of_the_join(
    connection: duckdb.DuckDBPyConnection, scores: list[ScoreRow], labels: list[LabelRow], by_unit: bool, negative: bool
) -> None:
    used = config(
        scores={"unit": "customer"} if by_unit else {},
        missing_label="negative_at_horizon" if negative else "ignore",
    )
    found = counted(connection, scores, labels, used)
    newest = max((row.ts for row in labels), default=0)
    first, panes, counts = joined(scores, labels, used, (newest - HORIZON_MS) // HOUR_MS - 1)
    assert found.first_pane == first
    assert as_in_the_state(found.panes) == panes
    assert {name: n for name, n in found.counts.items() if name != "rows"} == counts


@pytest.mark.parametrize("scale", ["probability", "percent", "logit"])
def test_bins_are_those_of_locate_at_every_threshold_and_beside_it(
    connection: duckdb.DuckDBPyConnection, scale: ScoreScale
) -> None:
    table = grid_table(scale)
    edges = np.append(table.low, table.high[-1])
    x = np.concatenate([edges])
    for toward in (-np.inf, np.inf):
        near = edges
        for _ in range(3):
            near = np.nextafter(near, toward)
            x = np.append(x, near)
    if scale != "logit":
        x = x[(x >= 0) & (x <= (1 if scale == "probability" else 100))]
    connection.register("given_x", pyarrow.table({"x": x}))
    connection.register("given_grid", pyarrow.table(table._asdict()))
    rows = connection.execute(
        f"SELECT x, {BIN_SQL} AS bin FROM"
        f" (SELECT x, {estimate_sql(scale)} AS place FROM given_x) JOIN given_grid ON estimate = place"
    ).fetchnumpy()
    assert len(rows["x"]) == len(x)
    np.testing.assert_array_equal(rows["bin"], bin_of(np.asarray(rows["x"]), scale))


def test_the_engines_unit_buckets_are_another_split_of_the_same_cells(connection: duckdb.DuckDBPyConnection) -> None:
    scores = [ScoreRow(f"id-{i}", START_MS + i * 1_000, 0.3, "UA", "JFK") for i in range(2_000)]
    labels = [LabelRow(row.id, row.ts + 60_000, i % 2) for i, row in enumerate(scores)]
    labels.append(LabelRow("later", START_MS + 10 * HOUR_MS, 0))
    exact, engine = (counted(connection, scores, labels, config(), buckets) for buckets in ("exact", "engine"))
    assert exact.counts == engine.counts
    assert difference_by_reason(exact, engine).panes == 0
    cells = engine.matured(engine.first_pane)
    assert cells.unit_bucket.tolist() == list(range(20))
    assert (cells.labelled != exact.matured(exact.first_pane).labelled).any()
    # 2,000 units on 20 buckets: 100 each, with a standard deviation of 10.
    assert np.abs(cells.labelled - 100).max() < 40


def test_thresholds_are_the_smallest_scores_of_their_bins() -> None:
    table = grid_table("probability")
    assert table.low[0] == 5e-324
    assert table.high[-1] == 1.0
    assert (locate(table.low)[0] == table.estimate).all()
    assert (locate(np.nextafter(table.low[1:], 0))[0] == table.estimate[1:] - 1).all()


ONE_TABLE = {
    "id": TEXT,
    "ts": WHOLE,
    "score": DOUBLE,
    "carrier": TEXT,
    "origin": TEXT,
    "label": WHOLE,
    "known": WHOLE,
    "rate": DOUBLE,
}


class Prediction(NamedTuple):
    id: str | None
    ts: int | None
    score: float | None
    carrier: str | None = "UA"
    origin: str | None = "JFK"
    label: int | None = None
    known: int | None = None
    rate: float | None = None


def one_table(
    connection: duckdb.DuckDBPyConnection,
    rows: Sequence[Prediction],
    *,
    event_id: str | None = "id",
    known: bool = True,
    keep_rate: str | None = None,
    **windows: Any,
) -> CellHistory:
    put(connection, "predictions", rows, ONE_TABLE)
    scores = {**windows.pop("scores", {}), **({} if keep_rate is None else {"keep_rate": keep_rate})}
    used = config(scores=scores, **windows)
    columns = ScoreColumns(
        "score",
        TimeColumn("ts", "ms"),
        event_id,
        keep_rate=keep_rate,
        groups={"carrier": "carrier", "origin": "origin"},
    )
    labels = LabelColumns("label", TimeColumn("known", "ms") if known else None)
    table = open_query(connection, "predictions")
    return cells_of_tables(DuckDBEngine(connection), table, columns, None, labels, used, KEY)


def merged(history: CellHistory, pane: int = 0) -> tuple[int, int, int]:
    """Labelled, positives, unlabelled."""
    cells = history.matured(history.first_pane + pane)
    return int(cells.labelled.sum()), int(cells.positives.sum()), int(cells.unlabelled.sum())


MINUTE_MS = 60_000


def at(minutes: float) -> int:
    return START_MS + int(minutes * MINUTE_MS)


def test_a_label_in_the_row_of_its_score_counts_within_the_horizon(connection: duckdb.DuckDBPyConnection) -> None:
    rows = [
        Prediction("in time", at(0), 0.5, label=1, known=at(120)),
        Prediction("beyond the horizon", at(0), 0.5, label=1, known=at(120) + 1),
        Prediction("not later than the score", at(0), 0.5, label=1, known=at(0)),
        Prediction("none yet", at(0), 0.5),
        Prediction("negative", at(0), 0.5, label=0, known=at(1)),
        Prediction("the newest label", at(400), 0.5, label=0, known=at(500)),
    ]
    history = one_table(connection, rows)
    assert merged(history) == (2, 1, 3)
    assert history.start == "cold"
    assert dict(history.counts) == {
        "rows": 6, "accepted": 6, "winners": 6, "labels": 5, "matched": 3, "unmatched": 2,
    }  # fmt: skip
    # The newest label is dated 500 minutes after the start: its pane's end less the horizon of two hours.
    assert history.last_matured == history.first_pane + 5
    assert history.last_pane == history.first_pane + 6


def test_without_label_times_labels_are_final_up_to_the_newest_score_that_has_one(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    rows = [Prediction("a", at(0), 0.5, label=1), Prediction("b", at(70), 0.5, label=0), Prediction("c", at(130), 0.5)]
    history = one_table(connection, rows, known=False)
    assert history.last_matured == history.first_pane + 1
    assert [merged(history, pane) for pane in (0, 1)] == [(1, 1, 0), (1, 0, 0)]


def test_without_an_id_every_row_counts(connection: duckdb.DuckDBPyConnection) -> None:
    rows = [Prediction("same", at(0), 0.5, label=1, known=at(1))] * 3
    assert one_table(connection, rows, event_id=None, horizon="1m").counts["winners"] == 3
    assert one_table(connection, rows, horizon="1m").counts["winners"] == 1


def test_rows_that_cannot_be_counted_are_counted_by_reason(connection: duckdb.DuckDBPyConnection) -> None:
    good = Prediction("good", at(0), 0.5, label=1, known=at(1))
    rows = [
        good,
        good._replace(id=None),
        good._replace(id=""),
        good._replace(id="i" * 513),
        good._replace(score=None),
        good._replace(score=float("nan")),
        good._replace(score=float("inf")),
        good._replace(score=1.0000011),
        good._replace(score=-0.0000011),
        good._replace(ts=None),
        good._replace(ts=at(0) // 1000),
        good._replace(rate=0.0),
        good._replace(id="bad label", label=2),
        good._replace(id="label without a time", known=None),
    ]
    history = one_table(connection, rows, keep_rate="rate", horizon="1m")
    assert dict(history.counts) == {
        "rows": 14,
        "accepted": 3,
        "winners": 3,
        "labels": 1,
        "matched": 1,
        "scores_rejected_id_invalid": 3,
        "scores_rejected_score_invalid": 2,
        "scores_rejected_score_out_of_range": 3,
        "scores_rejected_time_invalid": 1,
        "scores_rejected_time_out_of_range": 1,
        "scores_rejected_keep_rate_invalid": 1,
        "labels_rejected_label_invalid": 1,
        "labels_rejected_time_invalid": 1,
    }


def test_keep_rates_end_the_signatures(connection: duckdb.DuckDBPyConnection) -> None:
    rows = [Prediction("a", at(0), 0.5, rate=0.25), Prediction("b", at(0), 0.5), Prediction("c", at(0), 0.5, rate=1.0)]
    history = one_table(connection, rows, keep_rate="rate")
    assert set(history.signatures.values()) == {("UA", "JFK", "0.25"), ("UA", "JFK", "1.0")}


def test_scores_a_hair_outside_are_those_at_the_bound(connection: duckdb.DuckDBPyConnection) -> None:
    rows = [Prediction("a", at(0), -1e-6), Prediction("b", at(0), 1.0 + 1e-6), Prediction("c", at(0), -0.0)]
    history = one_table(connection, rows)
    assert history.scored(history.first_pane).grid_bin.tolist() == [0, 401]


def test_rarer_values_of_an_attribute_are_counted_together(connection: duckdb.DuckDBPyConnection) -> None:
    carriers = ["AA", "AA", "AA", "B6", "B6", "UA"]
    rows = [Prediction(f"id-{i}", at(0), 0.5, c, label=0, known=at(1)) for i, c in enumerate(carriers)]
    rows.append(Prediction("later", at(200), 0.5, label=0, known=at(201)))
    history = one_table(connection, rows, scores={"max_values": 2}, horizon="1m")
    found = {history.signatures[h][0] for h in history.matured(history.first_pane).signature.tolist()}
    assert found == {"AA", "B6", "__other__"}
    assert history.counts["capped"] == 1


def test_another_engine_gives_the_same_cells_through_ibis(connection: duckdb.DuckDBPyConnection) -> None:
    ibis = pytest.importorskip("ibis")
    rows = [
        Prediction(f"id-{i // 2 % 40}", at(i * 3.7), (i % 101) / 100, "UAB"[i % 3], None, i % 3 % 2, at(i * 3.7 + 5))
        for i in range(120)
    ]
    expected = one_table(connection, rows)
    other = ibis.duckdb.connect()
    other.con.register("given", arrow(rows))
    other.raw_sql("CREATE TABLE predictions AS SELECT * FROM given")
    engine = IbisEngine(other)
    columns = ScoreColumns("score", TimeColumn("ts", "ms"), "id", groups={"carrier": "carrier", "origin": "origin"})
    labels = LabelColumns("label", TimeColumn("known", "ms"))
    found = cells_of_tables(engine, engine.table("predictions"), columns, None, labels, config(), KEY)
    assert expected.counts["duplicates"] > 30
    assert found.panes == expected.panes
    assert found.counts == expected.counts
    with pytest.raises(HistoryError, match="nowhere: the engine refuses it"):
        engine.table("nowhere")


def arrow(rows: Sequence[Prediction]) -> pyarrow.Table:
    columns = zip(*rows, strict=True)
    return pyarrow.table({n: pyarrow.array(list(c), t) for (n, t), c in zip(ONE_TABLE.items(), columns, strict=True)})


def test_what_differs_is_told_with_its_reasons(connection: duckdb.DuckDBPyConnection) -> None:
    rows = [
        Prediction("a", at(0), 0.5, label=1, known=at(30)),
        Prediction("b", at(0), 0.5, label=0, known=at(30)),
        Prediction("c", at(90), 0.5, label=0, known=at(100)),
        Prediction("d", at(300), 0.5, label=0, known=at(400)),
    ]
    table = one_table(connection, rows)
    replayed = one_table(connection, rows[1:])
    same = difference_by_reason(table, table)
    assert (same.panes, same.first_pane, same.reasons, same.explained) == (0, None, {}, True)
    without_reason = difference_by_reason(replayed, table)
    assert (without_reason.winners, without_reason.labelled, without_reason.positives) == (1, 1, 1)
    assert (without_reason.panes, without_reason.first_pane) == (1, table.first_pane)
    assert not without_reason.explained
    late = difference_by_reason(replace(replayed, counts={**replayed.counts, "score_late": 1}), table)
    assert late.reasons == {"score_late": 1}
    assert late.explained


def test_tables_that_make_no_history_are_refused(connection: duckdb.DuckDBPyConnection) -> None:
    good = Prediction("good", at(0), 0.5)
    with pytest.raises(HistoryError, match="no row can be counted: scores_rejected_time_invalid 2"):
        one_table(connection, [good._replace(ts=None)] * 2)
    with pytest.raises(HistoryError, match="no row can be counted: there is none"):
        one_table(connection, [])
    with pytest.raises(HistoryError, match="is the unit of the times right"):
        one_table(connection, [good, good._replace(ts=at(0) + 10**12)])
    with pytest.raises(HistoryError, match=r"no column 'idd'\. Is 'id' meant\? The columns are: id, ts, score"):
        one_table(connection, [good], event_id="idd")
    with pytest.raises(HistoryError, match=r"column 'score' is of type DOUBLE, which cannot be an id"):
        one_table(connection, [good], event_id="score")
    ungrouped, labels = ScoreColumns("score", TimeColumn("ts", "ms")), LabelColumns("label", None)
    table, engine = open_query(connection, "predictions"), DuckDBEngine(connection)
    with pytest.raises(HistoryError, match=r"groups of the table are none, and scores\.attributes carrier, origin"):
        cells_of_tables(engine, table, ungrouped, None, labels, config(), KEY)
    with pytest.raises(HistoryError, match=r"scores\.sample_rate"):
        counted(connection, [ScoreRow("a", START_MS, 0.5, None, None)], [], config(scores={"sample_rate": 0.5}))


class Told(DuckDBEngine):
    """Keeps what it is asked."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        super().__init__(connection)
        self.asked: list[str] = []

    def rows(self, statement: Statement, source: str) -> list[tuple[Any, ...]]:
        self.asked.append(statement.sql)
        return super().rows(statement, source)

    def counts(self, statement: Statement, source: str) -> Counted:
        self.asked.append(statement.sql)
        return super().counts(statement, source)


@pytest.mark.parametrize("dialect", ["bigquery", "databricks", "postgres", "snowflake", "trino"])
def test_the_sql_has_no_function_that_an_engine_lacks(connection: duckdb.DuckDBPyConnection, dialect: str) -> None:
    sqlglot = pytest.importorskip("sqlglot")
    one = Prediction("a", at(0), 0.5, label=1, known=at(1))
    put(connection, "given_rows", [one, one._replace(known=at(300))], ONE_TABLE)
    stamps = "epoch_ms(ts)::TIMESTAMP AS ts, epoch_ms(known)::TIMESTAMPTZ AS known"
    connection.execute(f"CREATE OR REPLACE TABLE stamped AS SELECT * REPLACE ({stamps}) FROM given_rows")
    engine = Told(connection)
    groups = {"carrier": "carrier", "origin": "origin"}
    columns = ScoreColumns("score", TimeColumn("ts"), "id", keep_rate="rate", groups=groups)
    labels = LabelColumns("label", TimeColumn("known"))
    cells_of_tables(engine, open_query(connection, "stamped"), columns, None, labels, config(), KEY)
    assert len(engine.asked) == 2
    for sql in engine.asked:
        (other,) = sqlglot.transpile(sql, read="duckdb", write=dialect, unsupported_level=sqlglot.ErrorLevel.RAISE)
        unknown = sqlglot.parse_one(other, read=dialect).find_all(sqlglot.exp.Anonymous)
        assert [function.name for function in unknown] == []
