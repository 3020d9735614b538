"""Labels out of Parquet: what its types become, and what is said where it cannot be read."""

from __future__ import annotations

import json
import sys
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from stream_calib.config_records import LabelsSection
from stream_calib.errors import ConfigurationError
from tests.unit.workers.test_labels_load import MAY_MS, Loading, config
from workers.label_files import LabelFiles
from workers.parquet_labels import parquet_rows


def written(folder: Path, **columns: Any) -> Path:
    path = folder / "labels.parquet"
    parquet.write_table(pyarrow.table(columns), path, row_group_size=3_000)
    return path


def values(path: Path, **labels: Any) -> list[Any]:
    section = LabelsSection.model_validate({"time": {"path": "at"}} | labels)
    return [json.loads(value) for _, _, value in parquet_rows(path, section)]


def test_a_file_is_loaded_as_any_other(tmp_path: Path) -> None:
    rows = 7_000
    path = written(
        tmp_path,
        event_id=[f"id-{i}" for i in range(rows)],
        label=[i % 3 == 0 for i in range(rows)],
        at=pyarrow.array([MAY_MS + i for i in range(rows)], pyarrow.timestamp("ms", "UTC")),
        note=["not named by [labels]"] * rows,
    )
    loading = Loading(config(time={"path": "at", "unit": "iso8601"}))
    state = loading.load(path).state
    assert (state.read, state.accepted, state.written) == (rows, rows, rows)
    assert (state.first_ms, state.last_ms) == (MAY_MS, MAY_MS + rows - 1)
    found = sorted((json.loads(record.value or b"") for record in loading.labels()), key=lambda value: value["at"])
    assert [set(value) for value in found] == [{"event_id", "label", "at"}] * rows
    assert [value["label"] for value in found] == [i % 3 == 0 for i in range(rows)]
    files = LabelFiles([path], loading.config.labels)
    seen = [files.bytes_read for _ in files.rows(10_000)]
    assert seen == sorted(seen)
    assert (seen[0] > 0, seen[-1]) == (True, path.stat().st_size)


AT_NS = 1_714_521_600_123_456_789


@pytest.mark.parametrize(
    ("column", "values_of"),
    [
        (pyarrow.array([MAY_MS, 0]), [MAY_MS, 0]),
        (pyarrow.array([AT_NS, None], pyarrow.timestamp("ns", "UTC")), ["2024-05-01T00:00:00.123000+00:00", None]),
        (pyarrow.array([AT_NS, 0], pyarrow.timestamp("ns")), ["2024-05-01T00:00:00.123000", "1970-01-01T00:00:00"]),
        (
            pyarrow.array([MAY_MS] * 2, pyarrow.timestamp("ms", "America/New_York")),
            ["2024-04-30T20:00:00-04:00"] * 2,
        ),
        (pyarrow.array([date(2024, 5, 1), None]), ["2024-05-01", None]),
        (pyarrow.array([Decimal("3.00"), Decimal("0.25")]), [3, 0.25]),
    ],
)
def test_times_by_their_type(tmp_path: Path, column: Any, values_of: list[Any]) -> None:
    path = written(tmp_path, event_id=[7, 8], label=pyarrow.array([1, None], pyarrow.int8()), at=column)
    assert values(path) == [
        {"event_id": 7, "label": 1, "at": values_of[0]},
        {"event_id": 8, "label": None, "at": values_of[1]},
    ]


def test_paths_lead_into_structs_and_a_column_of_the_whole_path_wins(tmp_path: Path) -> None:
    at = datetime(2024, 5, 1, tzinfo=timezone.utc)
    path = written(tmp_path, **{"case": [{"id": "a", "at": at, "won": 0}], "case.won": [1], "model": ["m"]})
    found = values(path, id="case.id", label="case.won", time={"path": "case.at"}, model="model")
    assert found == [{"case": {"id": "a", "at": at.isoformat(), "won": 0}, "case.won": 1, "model": "m"}]


def test_an_empty_file_has_no_labels_and_a_model_need_not_be_named(tmp_path: Path) -> None:
    path = written(tmp_path, event_id=pyarrow.array([], pyarrow.string()), label=[], at=[])
    assert values(path, model="model") == []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"event_id": ["a"], "at": [1]}, "it has no column 'label'; the columns are named as the paths of"),
        ({"event_id": [b"a"], "label": [1], "at": [1]}, "after row 1: a value of the type bytes cannot be a field"),
    ],
)
def test_a_file_that_has_no_labels_says_so(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"labels\.parquet: .*{message}"):
        values(written(tmp_path, **columns))


def test_a_file_that_is_damaged_says_so(tmp_path: Path) -> None:
    path = written(tmp_path, event_id=["a"] * 9, label=[1] * 9, at=[1] * 9)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ConfigurationError, match=r"cannot be read on after row 0"):
        values(path)


def test_without_pyarrow_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, event_id=["a"], label=[1], at=[1])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigurationError, match=r"pip install stream-calib\[files\]`, or convert the file"):
        values(path)
