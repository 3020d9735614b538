"""Cells made inside an engine equal those of the join in memory, byte for byte, where nothing is late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.tables import LabelColumns, ScoreColumns
from stream_calib.backtest.tables_duckdb import connect, open_query
from stream_calib.backtest.warehouse import UnitBuckets, cells_of_tables
from stream_calib.backtest.warehouse_engine import DuckDBEngine
from stream_calib.backtest.warehouse_grid import bin_of, estimate_sql, grid_table
from stream_calib.config import Config
from stream_calib.config_models import ScoreScale
from stream_calib.events.contracts import ModelKey
from tests.unit.backtest.table_worlds import LabelRow, ScoreRow, joined

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


@settings(max_examples=60, deadline=None)
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
    assert list(found.panes) == panes
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
        f"SELECT x, estimate + CASE WHEN x >= high THEN 1 WHEN x < low THEN -1 ELSE 0 END AS bin FROM"
        f" (SELECT x, {estimate_sql(scale)} AS place FROM given_x) JOIN given_grid ON estimate = place"
    ).fetchnumpy()
    assert len(rows["x"]) == len(x)
    np.testing.assert_array_equal(rows["bin"], bin_of(np.asarray(rows["x"]), scale))
