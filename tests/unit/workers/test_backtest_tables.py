"""When labels beside their scores are dated."""

from __future__ import annotations

import pytest

from stream_calib.backtest.tables.columns import Field, Table, TimeColumn
from stream_calib.config import Config
from workers.backtest_sources import SourceOptions
from workers.backtest_tables import _of_one_table

FIELD = Field("x", "integer", "BIGINT")


@pytest.mark.parametrize(
    ("path", "option", "expected"),
    [
        ("seen_at", None, TimeColumn("seen_at", "ms")),
        ("seen_at", "landed", TimeColumn("landed", "ms")),
        ("ts", None, None),  # that of the scores
        ("elsewhere", None, None),
    ],
)
def test_labels_in_one_table_are_dated_by_the_configured_column(
    path: str, option: str | None, expected: TimeColumn | None
) -> None:
    times = {"path": "ts", "unit": "ms"}, {"path": path, "unit": "ms"}
    config = Config.model_validate(
        {
            "model": {"name": "m", "version": "1"},
            "scores": {"time": times[0]},
            "labels": {"time": times[1]},
            "windows": {"horizon": "1d"},
        }
    )
    table = Table("t", "t", dict.fromkeys(("ts", "seen_at", "landed"), FIELD))
    assert _of_one_table(SourceOptions(table=["t"], label_time=option), config, table).time == expected
