from typing import get_args

import numpy as np
import pytest
from scipy.special import expit

from stream_calib.calibration.metrics import (
    DEFAULT_EDGES,
    ece,
    ece_of_perfect,
    group_calibration_errors,
    maximum_calibration_error,
    multicalibration_error,
    multicalibration_error_of_counts,
)
from stream_calib.calibration.metrics.probability_bins import Bins


@pytest.mark.parametrize("bins", get_args(Bins))
def test_each_group_has_the_errors_of_its_rows_alone(bins: Bins) -> None:
    rng = np.random.default_rng(11)
    n = 3000
    p = np.round(rng.beta(1, 3, n), 2)
    y, w = rng.random(n) < p**1.3, rng.integers(0, 3, n)
    groups = [rng.integers(-1, 4, n), rng.integers(0, 2, n)]
    errors = group_calibration_errors(y, p, groups, w, n_bins=7, bins=bins)
    assert list(zip(errors.family.tolist(), errors.group.tolist(), strict=True)) == [
        (-1, 0),
        *((0, g) for g in range(4)),
        *((1, g) for g in range(2)),
    ]
    for i, (family, group) in enumerate(zip(errors.family, errors.group, strict=True)):
        inside = np.ones(n, dtype=bool) if family < 0 else groups[family] == group
        alone = y[inside], p[inside], w[inside]
        assert errors.labelled[i] == w[inside].sum()
        assert errors.ece[i] == pytest.approx(ece(*alone, n_bins=7, bins=bins), rel=1e-12)
        assert errors.maximum[i] == pytest.approx(maximum_calibration_error(*alone, n_bins=7, bins=bins), rel=1e-12)
        perfect = ece_of_perfect(p[inside], w[inside], n_bins=7, bins=bins)
        assert errors.ece_of_perfect[i] == pytest.approx(perfect, rel=1e-12)


def test_a_family_that_nothing_is_in_adds_no_lines() -> None:
    errors = group_calibration_errors([0, 1], [0.2, 0.4], [[-1, -1]])
    assert errors.family.tolist() == [-1]


def test_maximum_calibration_error_by_hand() -> None:
    y, p = [0, 0, 0, 1, 1, 1], [0.1, 0.1, 0.4, 0.4, 0.9, 0.9]
    assert maximum_calibration_error(y, p, bins="width", n_bins=10) == pytest.approx(0.1)
    assert maximum_calibration_error(y, p, [1, 1, 1, 3, 1, 1], n_bins=3) == pytest.approx(0.35)


def test_multicalibration_error_by_hand() -> None:
    # The textbook's four points: equal masses, reports .5, and groups of points 1, 2 and 2, 3 with truths .7 and .3.
    value, truth = np.full(4, 0.5), np.array([0.9, 0.5, 0.1, 0.5])
    groups = [[0, 0, -1, -1], [-1, 0, 0, -1]]
    cells = value, np.full(4, 1000), 1000 * truth, groups
    assert multicalibration_error_of_counts(*cells, edges=[0, 0.5, 1]) == pytest.approx(0.2)
    assert multicalibration_error_of_counts(*cells, edges=[0, 0.5, 1], gamma=0.6) == pytest.approx(0.0)
    apart = np.array([0.7, 0.4, 0.2, 0.5])
    # Now both points of each group lie in different intervals: |.9 - .7|, |.5 - .4|, |.1 - .2|.
    assert multicalibration_error_of_counts(apart, *cells[1:], edges=[0, 0.5, 1]) == pytest.approx(0.2)


def test_an_interval_holds_its_lower_edge_and_the_last_one_both() -> None:
    p = [0.2, 0.5, 1.0]
    assert multicalibration_error([1, 0, 1], p, [], edges=[0, 0.5, 1]) == pytest.approx(0.8)
    assert multicalibration_error([0, 0, 1], p, [], edges=[0, 0.5, 1]) == pytest.approx(0.25)


def test_cells_below_the_mass_do_not_count() -> None:
    y, p, group = np.repeat([0, 1], [99, 1]), np.repeat([0.0, 0.5], [99, 1]), np.repeat([0, 1], [99, 1])
    assert multicalibration_error(y, p, [group], gamma=0.01) == pytest.approx(0.5)
    assert multicalibration_error(y, p, [group], gamma=0.02) == 0.0


def test_intervals_are_spaced_in_log_odds() -> None:
    assert DEFAULT_EDGES[0] == 0
    assert DEFAULT_EDGES[-1] == 1
    np.testing.assert_allclose(DEFAULT_EDGES[1:-1], expit(np.arange(-7, 8)), rtol=1e-11)
