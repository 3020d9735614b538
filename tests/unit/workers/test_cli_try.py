"""`stream-calib try`, on the beginning of the flights year."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import msgspec
import numpy as np
import pyarrow
import pytest
from msgspec.structs import replace
from pyarrow import parquet
from rich.console import Console

from stream_calib.backtest.document import Interval
from stream_calib.backtest.trial.trial import Trial
from stream_calib.demo.flights import DAY_MS, load_flights
from tests.command_line import command_line
from workers.try_text import trial_text

DAYS = 40
OPTIONS = (
    *("--score", "prediction", "--label", "late", "--time", "departure", "--id", "flight", "--horizon", "24h"),
    *("--group", "carrier", "--group", "origin", "--label-time", "arrival"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The flights as a table of predictions, the last rows spoiled."""
    flights, made = load_flights(), tmp_path_factory.mktemp("try")
    n = int(np.searchsorted(flights.score_time_ms, flights.score_time_ms[0] + DAYS * DAY_MS))
    known = flights.label_row < n
    label, arrival = np.full(n, -1), np.zeros(n, np.int64)
    label[flights.label_row[known]] = flights.label[known]
    arrival[flights.label_row[known]] = flights.label_time_ms[known]
    score = flights.score[:n].copy()
    score[-3:] = 2.0
    table = pyarrow.table(
        {
            "flight": flights.event_id[:n],
            "departure": pyarrow.array(flights.score_time_ms[:n]).cast(pyarrow.timestamp("ms")),
            "prediction": score,
            "late": pyarrow.array(label, mask=label < 0),
            "arrival": pyarrow.array(arrival, mask=label < 0).cast(pyarrow.timestamp("ms")),
            "carrier": np.array(flights.carriers)[flights.carrier[:n]],
            "origin": np.array(flights.origins)[flights.origin[:n]],
        }
    )
    parquet.write_table(table, made / "flights.parquet")
    return made


def test_a_table_of_predictions_is_all_that_it_takes(folder: Path) -> None:
    html, result = folder / "out" / "report.html", folder / "out" / "trial.json"
    done = command_line("try", str(folder / "flights.parquet"), *OPTIONS, "--html", str(html), "--json", str(result))
    assert done.returncode == 0, done.stderr
    assert "Not counted: scores: score out of range 3." in done.stdout
    assert "What is wrong now (14 March 2013 to " in done.stdout
    assert "groups are wrong beyond doubt" in done.stdout
    assert "calibrators published" in done.stdout
    assert "--label-time" not in done.stdout
    assert "between 0 and 1, say what they are with --scale" in done.stdout
    assert html.read_text().startswith("<!DOCTYPE html>")
    trial = msgspec.json.decode(result.read_bytes(), type=Trial)
    assert trial.counts["scores_rejected_score_out_of_range"] == 3
    assert trial.counts["rows"] == trial.counts["accepted"] + 3
    assert trial.raw.ece > 3 * trial.raw.ece_of_perfect
    assert trial.calibrated.ece < trial.raw.ece
    assert trial.calibrated.log_loss < trial.raw.log_loss
    assert trial.counted_calibrated.log_loss < trial.counted_raw.log_loss
    assert trial.saved is not None
    assert trial.saved.value == pytest.approx(trial.counted_raw.log_loss - trial.counted_calibrated.log_loss, abs=1e-9)
    assert "over all days a prediction's log-loss would have been" in done.stdout
    assert trial.counted_from_ms <= trial.recent_from_ms
    assert trial.refits.first_served_ms is not None
    assert trial.refits.first_served_ms >= trial.first_ms + trial.horizon_ms
    assert trial.refits.asked >= trial.refits.published + max(trial.refits.refused.values())
    assert 0 < trial.groups_wrong <= trial.groups_looked_at
    assert trial.groups[0].calibrated is not None

    loss = trial.counted_raw.log_loss
    worse = replace(trial.counted_calibrated, log_loss=loss + 0.003)
    text = shown(replace(trial, counted_calibrated=worse, saved=Interval(-0.003, -0.007, 0.001)))
    assert "would have been 0.0030 more (saved, with 95 %: -0.0070 to +0.0010, which may be chance)" in text
    assert "or where outcomes come too late to follow what changes (--horizon)" in text
    assert "too few days to say whether that is chance" in shown(replace(trial, saved=None))
    assert "an outcome counts as known 1 day (--horizon) after its score" in shown(replace(trial, label_times=False))
    none = replace(trial.refits, asked=3, published=0, refused={"no_gain": 3}, first_served_ms=None)
    text = shown(replace(trial, refits=none))
    assert "no calibrator was published, so the scores were left alone; 0 calibrators published of 3 fitted" in text
    assert "others refused by the gate (no gain 3)" in text


def shown(trial: Trial) -> str:
    console = Console(width=10_000, record=True, file=StringIO())
    console.print(trial_text(trial))
    return console.export_text()


def test_mistakes_are_said_in_one_line(folder: Path) -> None:
    file = str(folder / "flights.parquet")
    wrong_name = command_line("try", file, *OPTIONS, "--group", "carier")
    assert wrong_name.returncode == 1
    assert "there is no column 'carier'. Is 'carrier' meant? The columns are: flight, departure" in wrong_name.stderr
    horizon = command_line("try", file, *OPTIONS, "--horizon", "a week")
    assert horizon.returncode == 1
    assert "--horizon a week: not a duration" in horizon.stderr
    long = command_line("try", file, *OPTIONS, "--horizon", "120d")
    assert long.returncode == 1
    assert "--horizon 120d: it must be longer than 0, and 45d at most" in long.stderr
    zone = command_line("try", file, *OPTIONS, "--zone", "Mars/Base")
    assert (zone.returncode, zone.stdout) == (1, "")
    assert "--zone Mars/Base: there is no such zone" in zone.stderr
    output = command_line("try", file, *OPTIONS, "--html", str(folder))
    assert (output.returncode, output.stdout) == (1, "")
    assert "is a folder; name a file" in output.stderr
    folderless = command_line("try", file, *OPTIONS, "--json", f"{file}/trial.json")
    assert (folderless.returncode, folderless.stdout) == (1, "")
    assert "flights.parquet is a file; name a folder" in folderless.stderr
    none = command_line("try", str(folder / "nothing*.csv"), *OPTIONS)
    assert none.returncode == 1
    assert "nothing*.csv: no file matches" in none.stderr
