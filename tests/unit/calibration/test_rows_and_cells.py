"""The grid loses next to nothing: fits and evaluations from cells against the same from rows."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.base import clone

from stream_calib.calibration import GIRB, ServedMap, metrics
from stream_calib.calibration.grid import N_BINS, locate
from stream_calib.calibration.groups import family_rule
from stream_calib.calibration.maps.parts import FamilyShift, MapParts
from stream_calib.demo.flights import load_flights

N = 400_000

Rows = tuple[NDArray[np.float64], NDArray[np.int64]]


def _drawn(score: NDArray[np.float64], truth: NDArray[np.float64], rng: np.random.Generator) -> Rows:
    return score, (rng.random(len(score)) < truth).astype(np.int64)


def skewed() -> Rows:
    """Overconfident scores of a skewed law."""
    rng = np.random.default_rng(11)
    score = rng.beta(1.2, 4.0, N)
    return _drawn(score, expit(0.6 * logit(score) - 0.2), rng)


def rare() -> Rows:
    """Events of .5 %, with scores ten times too high, some of them beyond the grid."""
    rng = np.random.default_rng(12)
    x = rng.normal(-3.5, 1.5, N)
    x[:200] -= 8
    return _drawn(expit(x), expit(x - 2.3), rng)


def two_humps_with_ties() -> Rows:
    """A confident model, wrong in the middle, whose scores are rounded to three digits: many are 0 or 1."""
    rng = np.random.default_rng(13)
    x = rng.normal(0, 1, N) + np.where(rng.random(N) < 0.5, 4.0, -4.0)
    return _drawn(expit(x).round(3), expit(0.7 * x + 0.6 * np.sin(x)), rng)


def flights() -> Rows:
    data = load_flights()
    return data.score[data.label_row], data.label.astype(np.int64)


@pytest.fixture(scope="module", params=[skewed, rare, two_humps_with_ties, flights], ids=lambda law: law.__name__)
def rows(request: pytest.FixtureRequest) -> Rows:
    drawn: Rows = request.param()
    return drawn


@pytest.fixture(scope="module")
def drawn() -> Rows:
    return skewed()


@pytest.mark.parametrize(
    "girb",
    [
        GIRB(),
        GIRB(strategy="information", representative="median"),
        GIRB(strategy=(0.05, 0.2, 0.5, 0.8)),
        GIRB(strategy="uniform", min_group_rows=500, min_group_positives=20, end_slopes=(0.5, 1.5)),
    ],
    ids=["defaults", "information", "edges", "uniform"],
)
def test_a_fit_from_cells_is_the_fit_from_rows(girb: GIRB, rows: Rows) -> None:
    mean_difference, log_loss = _differences(girb, rows)
    assert mean_difference < 0.002
    assert log_loss < 1e-4


def test_steps_from_cells_are_those_from_rows_but_for_the_bin_in_which_they_lie(rows: Rows) -> None:
    mean_difference, log_loss = _differences(GIRB(n_groups=20, shape="step"), rows)
    assert mean_difference < 0.004
    assert log_loss < 1e-4


def _differences(girb: GIRB, rows: Rows) -> tuple[float, float]:
    """Between fits from rows and from cells: mean absolute one in probability, and that of the log-losses."""
    score, label = rows
    grid_bin = locate(score)[0]
    from_rows = clone(girb).fit(score, label).predict(score)
    counts = np.bincount(grid_bin, minlength=N_BINS), np.bincount(grid_bin, label, N_BINS)
    from_cells = clone(girb).fit_cells(*counts).predict(score)
    log_loss = abs(metrics.log_loss(label, from_rows) - metrics.log_loss(label, from_cells))
    return float(np.abs(from_rows - from_cells).mean()), log_loss


def test_an_evaluation_from_cells_is_the_evaluation_from_rows(
    drawn: Rows,
) -> None:
    score, label = drawn
    signatures, index = [("a",), ("b",)], np.arange(N) % 2
    shift = FamilyShift(family_rule(("group",), ["group"]), {("a",): 0.3})
    a_map = ServedMap(MapParts(GIRB().fit(score, label).base_map(), (shift,), 0.05))
    p = a_map.apply(score, index, signatures)
    grid_bin = locate(score)[0]
    cell = index * N_BINS + grid_bin
    n, k = np.bincount(cell), np.bincount(cell, label)
    used = np.flatnonzero(n)
    value = a_map.at_centres(used % N_BINS, used // N_BINS, signatures)
    assert np.abs(p - a_map.at_centres(grid_bin, index, signatures)).mean() < 0.002
    assert abs(metrics.log_loss(label, p) - metrics.log_loss_of_counts(value, n[used], k[used])) < 1e-4
    assert abs(metrics.brier(label, p) - metrics.brier_of_counts(value, n[used], k[used])) < 1e-4
    assert abs(metrics.auc(label, p) - metrics.auc_of_counts(value, n[used], k[used])) < 1e-4
