"""What a trial says of a table: which groups are wrong, since when, and what it needs to be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from stream_calib.backtest.policies.run_columns import cell_columns
from stream_calib.backtest.tables.cells import cells_of_tables, span_of
from stream_calib.backtest.tables.duckdb_files import connect, open_files
from stream_calib.backtest.tables.engine import DuckDBEngine
from stream_calib.backtest.trial.columns import DAY_MS, KEY, TrialColumns
from stream_calib.backtest.trial.groups import WrongGroup, wrong_groups
from stream_calib.backtest.trial.trial import try_files
from stream_calib.errors import HistoryError
from stream_calib.refit.groups import family_rules

JANUARY_MS = 1_704_067_200_000
COLUMNS = TrialColumns("score", "label", "at", ["region", "device type"])


def written(path: Path, days: int, a_day: int, wrong_from_day: int) -> Path:
    """Predictions that say .3 of everything, which is true but for region=north from a day on, where it is .5; and,
    among devices of type `new`, always, where it is .2."""
    random = np.random.default_rng(7)
    n = days * a_day
    at = JANUARY_MS + np.arange(n) * (DAY_MS // a_day)
    north, new = random.random(n) < 0.3, random.random(n) < 0.2
    rate = np.where(new, 0.2, np.where(north & (at >= JANUARY_MS + wrong_from_day * DAY_MS), 0.5, 0.3))
    table = pyarrow.table(
        {
            "at": pyarrow.array(at).cast(pyarrow.timestamp("ms")),
            "score": np.full(n, 0.3),
            "label": (random.random(n) < rate).astype(np.int64),
            "region": np.where(north, "north", "south"),
            "device type": np.where(new, "new", "old"),
        }
    )
    parquet.write_table(table, path)
    return path


def found(path: Path, recent_day: int) -> tuple[int, dict[str, WrongGroup]]:
    with connect(threads=1) as connection:
        engine, table = DuckDBEngine(connection), open_files(connection, [path])
        scores, labels = COLUMNS.of_scores(engine, table), COLUMNS.of_labels(engine, table)
        config = COLUMNS.config(span_of(engine, table, scores, labels, KEY), DAY_MS)
        history = cells_of_tables(engine, table, scores, None, labels, config, KEY)
    first_pane = (JANUARY_MS + recent_day * DAY_MS) // history.pane_ms
    looked_at, wrong = wrong_groups(cell_columns(history, config), first_pane, family_rules(config), history.pane_ms)
    return looked_at, {group.group: group for group in wrong}


def test_wrong_groups_are_found_with_the_month_since_when(tmp_path: Path) -> None:
    looked_at, wrong = found(written(tmp_path / "log.parquet", days=182, a_day=120, wrong_from_day=91), recent_day=152)
    assert looked_at == 8
    # Days 0-30 are January, day 91 is the first of April.
    north = wrong["region=north"]
    assert (north.family, north.since, north.from_start) == ("region", "2024-04", False)
    assert north.low > north.said == pytest.approx(0.3, abs=0.01)
    assert north.observed == pytest.approx(0.8 * 0.5 + 0.2 * 0.2, abs=0.03)
    new = wrong["device_type=new"]
    assert (new.since, new.from_start) == ("2024-01", True)
    assert new.high < new.said
    assert "region=south" not in wrong or wrong["region=south"].observed < 0.3
    assert "region=north & device_type=old" in wrong


def test_a_calibrator_serves_when_its_outcomes_are_known(tmp_path: Path) -> None:
    path = written(tmp_path / "log.parquet", days=40, a_day=600, wrong_from_day=0)
    run = try_files([path], COLUMNS, 5 * DAY_MS)
    first = next(refit for refit in run.outcome.refits if refit.outcome == "published")
    served_ms = run.trial.refits.first_served_ms
    assert served_ms is not None
    assert 5 * DAY_MS < served_ms - (first.pane + 1) * run.history.pane_ms <= 7 * DAY_MS


@pytest.mark.parametrize(
    ("horizon", "first_served", "said"),
    [(5, 5.875, "was served"), (10, 10.875, "was said by a calibrator not yet in use")],
)
def test_alarms_say_whether_what_they_judge_was_served(
    tmp_path: Path, horizon: int, first_served: float, said: str
) -> None:
    """Both look at the same panes, of day 6; the score, .3 of all, is what neither of them judges."""
    path = written(tmp_path / "log.parquet", days=24, a_day=4_000, wrong_from_day=6)
    trial = try_files([path], COLUMNS, horizon * DAY_MS).trial
    assert trial.refits.first_served_ms == JANUARY_MS + round(first_served * DAY_MS)
    (alarm,) = [alarm for alarm in trial.alarms if alarm.kind == "residual"]
    assert alarm.what.startswith(
        f"outcomes of region=north & device_type=old: 0.535 where 0.285 {said}, in 282 labelled events; "
    )


def test_short_histories_say_the_week(tmp_path: Path) -> None:
    _, wrong = found(written(tmp_path / "log.parquet", days=28, a_day=2_000, wrong_from_day=14), recent_day=14)
    # 1 January 2024 was a Monday.
    assert wrong["region=north"].since == "2024-01-15"
    assert wrong["device_type=new"].since == "2024-01-01"


def test_true_scores_are_wrong_nowhere(tmp_path: Path) -> None:
    random, n = np.random.default_rng(3), 20_000
    score = random.beta(2, 4, n)
    table = {
        "at": pyarrow.array(JANUARY_MS + np.arange(n) * (60 * DAY_MS // n)).cast(pyarrow.timestamp("ms")),
        "score": score,
        "label": (random.random(n) < score).astype(np.int64),
        "region": random.choice([f"r{i}" for i in range(30)], n),
        "device type": random.choice([f"d{i}" for i in range(30)], n),
    }
    parquet.write_table(pyarrow.table(table), tmp_path / "log.parquet")
    looked_at, wrong = found(tmp_path / "log.parquet", recent_day=0)
    assert looked_at > 900
    assert wrong == {}


def test_scores_that_are_all_the_same_are_known_to_half_a_bin(tmp_path: Path) -> None:
    n = 400_000
    table = {
        "at": pyarrow.array(JANUARY_MS + np.arange(n) * (4 * DAY_MS // n)).cast(pyarrow.timestamp("ms")),
        "score": np.full(n, 0.3),
        "label": (np.arange(n) % 10 < 3).astype(np.int64),
        "region": np.full(n, "north"),
        "device type": np.full(n, "new"),
    }
    parquet.write_table(pyarrow.table(table), tmp_path / "log.parquet")
    assert found(tmp_path / "log.parquet", recent_day=0) == (3, {})


def refusal(path: Path, columns: TrialColumns, horizon_ms: int = DAY_MS) -> str:
    with pytest.raises(HistoryError) as refused:
        try_files([path], columns, horizon_ms)
    return str(refused.value)


def table_at(path: Path, times: Sequence[Any], **more: Any) -> Path:
    n = len(times)
    columns = {"at": times, "score": [0.5] * n, "label": [1] * n, "region": ["x"] * n, "device type": ["y"] * n}
    parquet.write_table(pyarrow.table({**columns, **more}), path)
    return path


def test_what_is_not_said_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    table_at(path, [JANUARY_MS // 1000, JANUARY_MS // 1000 + 60])
    assert refusal(path, COLUMNS).endswith(
        "column 'at' holds numbers (1704067200 to 1704067260): as s they are times of the years 2000 to 2099; say what"
        " they count, as --time-unit s"
    )
    table_at(path, [17, 18])
    assert refusal(path, COLUMNS).endswith("holds numbers (17 to 18); say what they count, as --time-unit s, ms or us")
    table_at(path, pyarrow.array([JANUARY_MS]).cast(pyarrow.timestamp("ms")), score=[7.0])
    assert "no row can be counted: scores_rejected_score_out_of_range 1" in refusal(path, COLUMNS)
    twice = TrialColumns("score", "label", "at", ["region", "region"])
    assert "'region' is given twice as a group" in refusal(path, twice)
    known = TrialColumns("score", "label", "at", ["region"], label_time="seen")
    when = pyarrow.array([JANUARY_MS]).cast(pyarrow.timestamp("ms"))
    table_at(path, when, seen=pyarrow.array([JANUARY_MS + 1]).cast(pyarrow.timestamp("ms")))
    no_outcome = replace(COLUMNS, label="region")
    assert refusal(path, no_outcome).endswith(
        "has an outcome that is 0, 1, true or false (labels_rejected_label_invalid 1); the column holds 'x' 1: make 1"
        " of what is positive and 0 of what is not"
    )
    assert "no whole UTC day has outcomes that are final, which they are a horizon (1 d)" in refusal(path, known)


def test_a_column_that_tells_rows_apart_makes_no_groups(tmp_path: Path) -> None:
    times = pyarrow.array(JANUARY_MS + np.arange(400) * DAY_MS // 10).cast(pyarrow.timestamp("ms"))
    path = table_at(tmp_path / "log.parquet", times, **{"device type": [f"d{i}" for i in range(400)]})
    said = refusal(path, COLUMNS)
    assert "the column 'device type' has about " in said
    assert "leave it out of --group (where it names predictions, it is the --id)" in said


def test_findings_are_of_most_rows_or_of_none(tmp_path: Path) -> None:
    """Else a scale that was not said, or labels of -1, would be read as a model that is wrong."""
    path, days = tmp_path / "log.parquet", [JANUARY_MS // 1000 + 86_400 * day for day in range(30)]
    seconds = replace(COLUMNS, time_unit="s")
    table_at(path, days, score=[0.5] * 10 + [7.0] * 20, label=[0, 1] * 15)
    assert "20 of 30 rows cannot be counted (scores_rejected_score_out_of_range 20)" in refusal(path, seconds)
    table_at(path, days, score=[0.5] * 30, label=[-1, 1, -1] * 10)
    assert "most outcomes cannot be counted, as they are not 0, 1, true or false" in refusal(path, seconds)
    table_at(path, days, score=[0.5] * 30, label=[None, 1, None] * 10)
    assert try_files([path], seconds, DAY_MS).trial.counts["labels"] == 10


def test_cells_of_csv_are_numbers_or_iso_8601(tmp_path: Path) -> None:
    numbers, texts, columns = tmp_path / "numbers.csv", tmp_path / "texts.csv", replace(COLUMNS, groups=[])
    numbers.write_text(f"at,score,label\n{JANUARY_MS},0.5,1\n,0.5,1\n")
    texts.write_text("at,score,label\n2024-01-01T00:00Z,0.5,1\n")
    assert "--time-unit ms" in refusal(numbers, columns)
    with connect(threads=1) as connection:
        engine = DuckDBEngine(connection)
        in_ms = replace(columns, time_unit="ms")
        for path, told, read in ((numbers, in_ms, "ms"), (texts, columns, "iso8601"), (texts, in_ms, "iso8601")):
            assert told.of_scores(engine, open_files(connection, [path])).time.unit == read


@pytest.mark.parametrize(("days", "pane", "age"), [(30, "1h", "1d"), (60, "1d", "1d"), (306, "1d", "2d")])
def test_long_ranges_have_longer_panes(days: int, pane: str, age: str) -> None:
    config = COLUMNS.config((JANUARY_MS, JANUARY_MS + days * DAY_MS - 1), DAY_MS)
    assert config.windows.pane_ms == {"1h": 3_600_000, "1d": DAY_MS}[pane]
    assert config.refit.max_age_ms == {"1d": DAY_MS, "2d": 2 * DAY_MS}[age]
    assert list(config.scores.attributes) == ["region", "device_type"]
    assert config.scores.intersections == [["region", "device_type"]]
