"""The demo's figures: which rows count, what the file holds, what the terminal shows."""

import json

import numpy as np
import pytest
from rich.console import Console

from stream_calib.demo.figures import counted, evaluated_rows, figures_table, flight_families, quality
from stream_calib.demo.flights import Flights, load_flights
from tests.demo.made_up import report_data


@pytest.fixture(scope="module")
def flights() -> Flights:
    return load_flights()


def test_rows_count_from_day_14_of_the_score_on(flights: Flights) -> None:
    start = flights.days()[14].start_ms

    rows = evaluated_rows(flights)

    score_time = flights.score_time_ms[flights.label_row]
    assert np.array_equal(rows, np.flatnonzero(score_time >= start))
    assert len(rows) == 264_895


def test_raw_scores_have_the_published_quality(flights: Flights) -> None:
    """Figures of the same rows computed apart from this project: log-loss .5239, worst group error 13.1 %."""
    rows = evaluated_rows(flights)
    scores = flights.label_row[rows]

    raw = quality(flights.score[scores], flights.label[rows], flight_families(flights, scores))

    assert raw.log_loss == pytest.approx(0.5239, abs=5e-5)
    assert raw.worst_group_error == pytest.approx(13.1, abs=0.05)


def test_the_file_holds_exactly_the_published_keys() -> None:
    figures = report_data().figures

    written = json.loads(figures.model_dump_json())

    quality_keys = ["log_loss", "brier", "ece", "auc", "worst_group_error"]
    assert list(written) == [
        "scores",
        "duplicate_scores",
        "labels",
        "unlabelled",
        "raw",
        "calibrated",
        "refits",
        "alerts",
        "seconds",
    ]
    assert list(written["labels"]) == ["joined", "late", "unmatched"]
    assert list(written["raw"]) == list(written["calibrated"]) == quality_keys
    assert list(written["refits"]) == ["requested", "published", "refused"]


def test_the_terminal_shows_figures_and_reasons() -> None:
    console = Console(width=110)

    with console.capture() as shown:
        console.print(figures_table(report_data().figures, {"no_gain": 130, "auc_drop": 5}, {"psi": 3}))

    text = shown.get()
    for part in ("0.5239", "0.5037", "13.1 %", "2.0 %", "284,821", "130 no gain, 5 AUC drop", "3 psi"):
        assert part in text


def test_reasons_are_counted_most_frequent_first_and_may_overlap() -> None:
    codes = {"auc_drop": 2, "no_gain": 7, "lower_bound_below_margin": 2}

    assert counted(codes, 11) == "7 no gain, 2 AUC drop, 2 lower bound below margin"
    assert counted(codes, 9) == "7 no gain, 2 AUC drop, 2 lower bound below margin (they overlap)"
    assert counted({}, 0) == ""
