"""Repeated scores were merged into one point that kept the average of their weights where their sum was due, so the
isotonic fit was wrong. Of the same kind: rates of bins given to the isotonic regression without the bins' counts, and
rows of weight 0 that divide by zero or never end.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stream_calib.calibration import GIRB, Isotonic
from stream_calib.calibration.calibrator import Calibrator
from stream_calib.config import CalibrationSection
from stream_calib.errors import TooFewRowsError, WeightError
from stream_calib.windows.cells import MaturedCells, ScoredCells
from tests.unit.refit.world import Rows, World, config

SCORES = [0.2, 0.4, 0.4, 0.4, 0.6, 0.8]
LABELS = [0, 1, 1, 0, 0, 1]
RIGHT = [0.0, 0.5, 0.5, 1.0]
DISTINCT = [0.2, 0.4, 0.6, 0.8]


def plain_girb(**parameters: object) -> GIRB:
    """Without prior, lower limit and strict increase; a group for each score."""
    return GIRB(**{"n_groups": 20, "prior_strength": 0.0, "strict": False, "p_min": 0.0, **parameters})  # type: ignore[arg-type]  # parameters by name


@pytest.fixture(params=["isotonic", "girb"])
def made(request: pytest.FixtureRequest) -> Calibrator:
    return Isotonic(p_min=0.0) if request.param == "isotonic" else plain_girb()


def test_three_rows_of_one_score_weigh_three(made: Calibrator) -> None:
    assert made.fit(SCORES, LABELS).predict(DISTINCT) == pytest.approx(RIGHT, abs=1e-12)


def test_counts_by_bin_carry_their_weight_too(made: Calibrator) -> None:
    """Two bins that pool: 3 rows of which 2 are positive, then 1 row that is not. By rates alone it would be 1/3."""
    labelled, positives = np.zeros(402), np.zeros(402)
    labelled[[100, 180, 220, 300]], positives[[100, 180, 220, 300]] = [1, 3, 1, 1], [0, 2, 0, 1]
    centres = 1 / (1 + np.exp(-(-10.0 + 0.05 * (np.array([100, 180, 220, 300]) - 0.5))))
    assert made.fit_cells(labelled, positives).predict(centres) == pytest.approx(RIGHT, abs=1e-12)


def test_rows_of_weight_0_change_nothing(made: Calibrator) -> None:
    weights = [1, 1, 1, 1, 1, 1, 0, 0]
    found = made.fit([*SCORES, 0.4, 0.7], [*LABELS, 0, 0], weights).predict(DISTINCT)
    assert found == pytest.approx(RIGHT, abs=1e-12)


def test_weights_that_are_all_0_are_refused(made: Calibrator) -> None:
    with pytest.raises(WeightError, match="all weights are 0"):
        made.fit(SCORES, LABELS, [0] * 6)
    with pytest.raises(TooFewRowsError, match="0 labelled rows"):
        made.fit_cells(np.zeros(402), np.zeros(402))


@given(st.lists(st.tuples(st.sampled_from(DISTINCT), st.booleans(), st.integers(0, 5)), min_size=1, max_size=12))
@settings(max_examples=60)
def test_a_weight_is_as_many_rows_in_any_order(rows: list[tuple[float, bool, int]]) -> None:
    rows = [*rows, (0.2, False, 1), (0.8, True, 1)]
    score, label, weight = (list(column) for column in zip(*rows, strict=True))
    by_weight = plain_girb().fit(score, label, weight).predict(DISTINCT)
    repeated = plain_girb().fit(np.repeat(score, weight)[::-1], np.repeat(label, weight)[::-1]).predict(DISTINCT)
    assert by_weight == pytest.approx(repeated, abs=1e-12)
    assert by_weight == pytest.approx(pooled(score, label, weight), abs=1e-12)


def pooled(score: list[float], label: list[bool], weight: list[int]) -> NDArray[np.float64]:
    """Least squares by its min-max form: at each score the largest mean up to it of the smallest mean from it on,
    where scores without weight are not there and have what lies between their neighbours in log-odds."""
    weigh, count = np.zeros(4), np.zeros(4)
    for s, y, w in zip(score, label, weight, strict=True):
        weigh[DISTINCT.index(s)] += w
        count[DISTINCT.index(s)] += w * y
    there = np.flatnonzero(weigh)
    value = [
        max(min(count[a : b + 1].sum() / weigh[a : b + 1].sum() for b in there if b >= i) for a in there if a <= i)
        for i in there
    ]
    x = np.log(np.array(DISTINCT) / (1 - np.array(DISTINCT)))
    return np.asarray(np.interp(x, x[there], value))


class Unlabelled(Rows):
    """Winners without labels: a window in which nothing has a weight."""

    def cells(self) -> tuple[ScoredCells, MaturedCells]:
        self.label[:] = -1
        return super().cells()


def test_a_window_in_which_nothing_has_a_weight_keeps_the_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    short_memory = CalibrationSection.model_validate({"structure_half_life": "6h"})
    world = World(config().model_copy(update={"calibration": short_memory}))
    world.run(40)
    assert world.store.current() is not None
    monkeypatch.setattr("tests.unit.refit.world.Rows", Unlabelled)
    world.run(60)
    served = world.store.current()
    world.store.request_manual("ann", "try it")
    world.run(4)
    refit = world.store.reports()[-1]
    assert (refit.reason, refit.outcome) == ("manual", "failed")
    assert refit.detail.startswith("TooFewRowsError")
    assert world.store.current() == served
