"""The result as Parquet files: every row and figure of the document is in them, and every column is described."""

from __future__ import annotations

import re
import sys
from datetime import datetime, timezone
from pathlib import Path

import msgspec
import pyarrow
import pytest
from pyarrow import parquet

from stream_calib.backtest.document import BacktestDocument
from stream_calib.backtest.report.export import export_parquet
from stream_calib.backtest.report.export_tables import TABLES
from stream_calib.errors import BacktestError
from tests.unit.backtest.made_up_results import FIRST_DAY, PANE_MS, document


@pytest.fixture(scope="module")
def result() -> BacktestDocument:
    return document(policies=3, days=40, groups=2)


def test_every_table_is_written_with_its_columns_and_their_descriptions(
    result: BacktestDocument, tmp_path: Path
) -> None:
    paths = export_parquet(result, tmp_path / "new" / "folder")

    assert [path.name for path in paths] == [f"{name}.parquet" for name in TABLES]
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == sorted(p.name for p in paths)
    for path, table in zip(paths, TABLES.values(), strict=True):
        schema = parquet.read_schema(path)
        assert schema.names == [column.name for column in table.columns]
        for field, column in zip(schema, table.columns, strict=True):
            assert field.metadata[b"description"].decode() == column.says
        assert schema.metadata[b"source"] == b"files scores.parquet, labels.csv"


def test_sums_of_the_rows_are_those_of_the_document(result: BacktestDocument, tmp_path: Path) -> None:
    tables = {path.stem: parquet.read_table(path).to_pylist() for path in export_parquet(result, tmp_path)}

    policies = {row["policy"]: row for row in tables["policies"]}
    assert [row["role"] for row in tables["policies"]] == ["current", "policy", "policy", "raw"]
    for line in result.table:
        row = policies[line.policy]
        assert (row["log_loss"], row["log_loss_low"]) == (line.log_loss.value, line.log_loss.low)
        assert row["alarms"] == line.alarms
        days = [day for day in tables["days"] if day["policy"] == line.policy and day["counted"]]
        total = sum(day["served_log_loss"] for day in days) / sum(day["served_labelled"] for day in days)
        assert total == pytest.approx(line.log_loss.value, rel=1e-12)
        bins = [row for row in tables["reliability"] if row["policy"] == line.policy]
        assert sum(row["served_positives"] for row in bins) == pytest.approx(
            sum(day["served_positives"] for day in tables["days"] if day["policy"] == line.policy)
        )
        groups = [row for row in tables["group_months"] if row["policy"] == line.policy]
        assert sum(row["labelled"] for row in groups if row["group"] == "all") == pytest.approx(
            sum(day["served_labelled"] for day in days)
        )
    assert policies["current"]["log_loss_difference"] is None
    assert policies["raw"]["alarms"] is None
    assert len(tables["refits"]) == sum(len(one.refits) for one in result.outcomes)
    assert len(tables["alarms"]) == sum(len(one.alarms) for one in result.outcomes)
    assert len(tables["groups"]) == 9
    refit, first = result.outcomes[0].refits[0], tables["refits"][0]
    assert first["at"] == datetime.fromtimestamp((refit.pane + 1) * PANE_MS / 1000, timezone.utc)
    assert (first["outcome"], first["codes"], first["version"]) == ("published", [], refit.version)
    assert tables["days"][0]["day"].toordinal() - datetime(1970, 1, 1).toordinal() == FIRST_DAY


def test_the_same_document_gives_the_same_bytes_and_replaces_what_was_there(
    result: BacktestDocument, tmp_path: Path
) -> None:
    first = [path.read_bytes() for path in export_parquet(result, tmp_path)]
    (tmp_path / "days.parquet").write_bytes(b"half")

    assert [path.read_bytes() for path in export_parquet(result, tmp_path)] == first


def test_a_document_without_events_gives_empty_tables(tmp_path: Path) -> None:
    made = document(policies=1, days=2, groups=0)
    bare = msgspec.structs.replace(made.outcomes[0], groups=[], alarms=[], refits=[])

    written = export_parquet(msgspec.structs.replace(made, outcomes=[bare]), tmp_path)

    tables = {path.stem: parquet.read_table(path) for path in written}
    assert tables["refits"].num_rows == tables["alarms"].num_rows == tables["group_months"].num_rows == 0
    assert tables["refits"].schema.field("at").type == pyarrow.timestamp("ms", "UTC")
    assert tables["days"].schema.field("day").type == pyarrow.date32()


def test_the_page_names_every_file_and_column() -> None:
    page = (Path(__file__).parents[3] / "docs/backtest.md").read_text(encoding="utf-8")
    section = page.split("\n## Parquet\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)\.parquet` \| .+? \| (.+) \|$", section, re.MULTILINE)

    assert {name: re.findall(r"`(\w+)`", columns) for name, columns in rows} == {
        name: [column.name for column in table.columns] for name, table in TABLES.items()
    }


def test_a_folder_that_cannot_be_written_is_named(result: BacktestDocument, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(BacktestError, match=r"file/in: the result cannot be written as Parquet"):
        export_parquet(result, tmp_path / "file" / "in")


def test_without_pyarrow_the_extra_is_named(
    result: BacktestDocument, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(BacktestError, match=r"pip install stream-calib\[files\].*use --json"):
        export_parquet(result, tmp_path)
    assert list(tmp_path.iterdir()) == []
