"""The grid loses next to nothing: fits and evaluations from cells against the same from rows."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit, logit

from stream_calib.calibration import GIRB, ServedMap, metrics
from stream_calib.calibration.grid import N_BINS, locate
from stream_calib.calibration.groups import family_rule
from stream_calib.calibration.map_parts import FamilyShift, MapParts

N = 400_000


@pytest.fixture(scope="module")
def drawn() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Overconfident scores of a skewed law, with labels."""
    rng = np.random.default_rng(11)
    score = rng.beta(1.2, 4.0, N)
    return score, (rng.random(N) < expit(0.6 * logit(score) - 0.2)).astype(np.int64)


def test_a_fit_from_cells_is_the_fit_from_rows(drawn: tuple[NDArray[np.float64], NDArray[np.int64]]) -> None:
    score, label = drawn
    grid_bin = locate(score)[0]
    rows = GIRB().fit(score, label).predict(score)
    counts = np.bincount(grid_bin, minlength=N_BINS), np.bincount(grid_bin, label, N_BINS)
    cells = GIRB().fit_cells(*counts).predict(score)
    assert np.abs(rows - cells).mean() < 0.002
    assert abs(metrics.log_loss(label, rows) - metrics.log_loss(label, cells)) < 1e-4


def test_an_evaluation_from_cells_is_the_evaluation_from_rows(
    drawn: tuple[NDArray[np.float64], NDArray[np.int64]],
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
