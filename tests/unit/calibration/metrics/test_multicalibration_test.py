import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from benchmarks.null_rejections import make_world, null_p_values, shifted_p_values
from stream_calib.calibration.metrics import multicalibration_test, multicalibration_test_of_counts
from stream_calib.errors import WeightError

DRAWS = 2000


@pytest.mark.parametrize(("rows", "n_groups"), [(2_000, 64), (2_000, 500), (200_000, 64)])
def test_true_probabilities_are_rejected_no_more_often_than_the_level(rows: int, n_groups: int) -> None:
    # benchmarks/null_rejections.py has the sizes and groups that take longer.
    rng = np.random.default_rng([rows, n_groups])
    p = null_p_values(make_world(rows, n_groups, rng), DRAWS, rng)
    for level in (0.01, 0.05, 0.1, 0.3):
        assert (p <= level).mean() <= level + 3 * np.sqrt(level * (1 - level) / DRAWS)
    # And it is a test, not a constant: the union bound leaves more than a tenth of the level.
    assert (p <= 0.1).mean() > 0.01


def test_one_wrong_group_among_64_is_found() -> None:
    rng = np.random.default_rng(5)
    p = shifted_p_values(make_world(20_000, 64, rng), 200, rng)
    assert (p <= 0.05).mean() > 0.9


def test_labels_that_depend_on_each_other_are_rejected_unless_the_overdispersion_is_given() -> None:
    # Each label counts four times: the variance of every sum is four times that of independent labels.
    rng = np.random.default_rng(6)
    group = np.arange(500) % 20
    value = rng.beta(2, 4, 500)
    plain, given_phi = np.empty(400), np.empty(400)
    for i in range(400):
        positives = 4 * (rng.random(500) < value)
        counts = value, np.full(500, 4), positives, [group]
        plain[i] = multicalibration_test_of_counts(*counts).p_value
        given_phi[i] = multicalibration_test_of_counts(*counts, overdispersion=4.0).p_value
    assert (plain <= 0.05).mean() > 0.5
    assert (given_phi <= 0.05).mean() <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


def test_the_worst_cell_is_named() -> None:
    rng = np.random.default_rng(7)
    n = 20_000
    group, high = np.arange(n) % 10, np.arange(n) // 10 % 2 == 1
    p = np.where(high, 0.3, 0.05)
    y = rng.random(n) < p + 0.15 * ((group == 7) & high)
    result = multicalibration_test(y, p, [group % 2, group])
    assert (result.worst.family, result.worst.group, result.worst.interval) == (1, 7, 7)
    assert result.worst.labelled == 1000
    assert result.worst.expected == pytest.approx(300)
    assert result.worst.residual == pytest.approx(y[(group == 7) & high].mean() - 0.3)
    assert result.p_value < 1e-6


def test_one_cell_by_hand() -> None:
    # Everything is the only group, over its only interval and over all: four tails are possible, and 9 of 10 at .5 has
    # the tail 11 / 1024.
    result = multicalibration_test_of_counts([0.5], [10], [9], [])
    assert result.statistic == pytest.approx(binom.sf(8, 10, 0.5))
    assert result.tails == 4
    assert result.p_value == pytest.approx(44 / 1024)
    assert result.worst.interval == -1


def test_a_small_error_of_a_whole_group_shows_in_its_sum() -> None:
    value = np.repeat(np.linspace(0.05, 0.95, 10), 2)
    group = np.tile([0, 1], 10)
    positives = np.round(1000 * (value + 0.03 * (group == 1)))
    result = multicalibration_test_of_counts(value, np.full(20, 1000), positives, [group])
    assert (result.worst.family, result.worst.group, result.worst.interval) == (0, 1, -1)
    assert result.p_value < 0.001


def test_groups_too_small_to_reject_cost_nothing() -> None:
    y, p = np.repeat([1, 0], [70, 30]), np.full(100, 0.5)
    alone = multicalibration_test(y, p, [])
    with_singles = multicalibration_test(y, p, [np.arange(100)])
    assert with_singles.p_value == alone.p_value
    assert alone.p_value < 1e-3


def test_what_is_certain_and_wrong_has_p_0() -> None:
    assert multicalibration_test([1, 0], [0.0, 0.0], []).p_value == 0.0
    assert multicalibration_test([0, 1], [0.0, 1.0], []).p_value == 1.0


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans(), st.integers(-1, 3)), min_size=1, max_size=60))
@settings(max_examples=60)
def test_a_p_value_is_a_probability(rows: list[tuple[float, bool, int]]) -> None:
    p, y, group = (np.array(column) for column in zip(*rows, strict=True))
    result = multicalibration_test(y, p, [group])
    assert 0 <= result.statistic <= result.p_value <= 1


def test_counts_that_were_decayed_are_refused() -> None:
    with pytest.raises(WeightError, match="whole numbers"):
        multicalibration_test_of_counts([0.5], [10.5], [3], [])
