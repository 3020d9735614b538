import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stream_calib.calibration.metrics import worst_group_error, worst_group_error_of_counts
from stream_calib.errors import FitError, LengthMismatchError, NonFiniteInputError, OneClassError, WeightError


def by_definition(y: NDArray[np.int64], p: NDArray[np.float64], families: list[NDArray[np.int64]]) -> float:
    """One group after the other, one value of p after the other."""
    n, base, whole = len(p), y.mean(), np.sqrt((p * (1 - p)).sum())
    worst = 0.0
    for family in [np.zeros(n, dtype=np.int64), *families]:
        for group in set(family.tolist()):
            inside = family == group
            if inside.sum() < 10:
                continue
            sums = [0.0]
            for value in sorted(set(p[inside].tolist())):
                sums.append(float((y - p)[inside & (p <= value)].sum()))
            worst = max(worst, (max(sums) - min(sums)) / np.sqrt((p * (1 - p))[inside].sum()))
    return float(worst * whole / n / min(base, 1 - base) * 100)


@given(st.integers(0, 100_000), st.integers(12, 120), st.integers(2, 30))
@settings(max_examples=50)
def test_is_what_the_definition_says(seed: int, n: int, values: int) -> None:
    rng = np.random.default_rng(seed)
    p = rng.integers(1, values + 1, n) / (values + 2)
    y = (rng.random(n) < p).astype(np.int64)
    y[:2] = [0, 1]
    families = [rng.integers(0, 4, n), rng.integers(0, 2, n)]
    assert worst_group_error(y, p, families) == pytest.approx(by_definition(y, p, families), rel=1e-9)


def test_everything_alone_by_hand() -> None:
    y, p = np.array([1, 0] * 10), np.full(20, 0.25)
    # The sum ends at 20 x (.5 - .25) = 5: over n and the base rate that is 50 %.
    assert worst_group_error(y, p, []) == pytest.approx(50.0)


def test_a_wrong_group_shows_although_everything_together_is_right() -> None:
    p = np.full(2000, 0.3)
    group = np.repeat([0, 1], [1900, 100])
    y = np.zeros(2000, dtype=int)
    y[:540] = 1
    y[1900:1960] = 1
    assert worst_group_error(y, p, []) == pytest.approx(0.0, abs=1e-9)
    assert worst_group_error(y, p, [group]) == pytest.approx(100 * 30 / np.sqrt(21) * np.sqrt(420) / 2000 / 0.3)


def test_groups_of_fewer_than_10_rows_are_left_out() -> None:
    rng = np.random.default_rng(0)
    p = np.full(1009, 0.5)
    y = np.concatenate([rng.permutation(np.arange(1000) % 2), np.ones(9, dtype=int)])
    group = np.repeat([0, 1], [1000, 9])
    assert worst_group_error(y, p, [group]) == worst_group_error(y, p, [])
    assert worst_group_error(y, p, [group], min_rows=9) > worst_group_error(y, p, [group])


def test_the_order_of_rows_does_not_matter_among_ties() -> None:
    rng = np.random.default_rng(1)
    p, y, group = rng.integers(1, 5, 300) / 6, rng.integers(0, 2, 300), rng.integers(0, 3, 300)
    order = rng.permutation(300)
    straight = worst_group_error(y, p, [group])
    assert worst_group_error(y[order], p[order], [group[order]]) == pytest.approx(straight, rel=1e-12)


def test_rows_of_weight_0_change_nothing_and_a_common_weight_neither() -> None:
    rng = np.random.default_rng(2)
    p, group = rng.random(300), rng.integers(0, 3, 300)
    y = (rng.random(300) < p).astype(int)
    straight = worst_group_error(y[:200], p[:200], [group[:200]])
    weight = np.repeat([3.0, 0.0], [200, 100])
    assert worst_group_error(y, p, [group], weight) == pytest.approx(straight, rel=1e-12)


def test_unequal_weights_enter_the_variance_squared() -> None:
    y, p = np.array([1] * 10 + [1, 0] * 20), np.full(50, 0.5)
    group, weight = np.repeat([0, 1], [10, 40]), np.repeat([3.0, 1.0], [10, 40])
    base_rate = (30 + 20) / 70
    in_group = 3 * 5 / np.sqrt(10 * 9 * 0.25)
    expected = in_group * np.sqrt((10 * 9 + 40) * 0.25) / 70 / (1 - base_rate) * 100
    assert worst_group_error(y, p, [group], weight) == pytest.approx(expected)


@given(st.integers(0, 100_000))
@settings(max_examples=30)
def test_counts_of_weighted_rows_say_what_the_rows_say(seed: int) -> None:
    rng = np.random.default_rng(seed)
    value, group, weight = rng.integers(1, 8, 300) / 9, rng.integers(-1, 3, 300), rng.choice([1.0, 2.5, 20.0], 300)
    y = (rng.random(300) < value).astype(np.int64)
    cells, member = np.unique(np.stack([value, group]), axis=1, return_inverse=True)
    labelled, positives, squared = (
        np.bincount(member.reshape(-1), column) for column in (weight, weight * y, weight**2)
    )
    of_cells = worst_group_error_of_counts(cells[0], labelled, positives, [cells[1].astype(np.int64)], squared=squared)
    assert of_cells == pytest.approx(worst_group_error(y, value, [group], weight), rel=1e-9)
    with pytest.raises(LengthMismatchError, match="squared weights"):
        worst_group_error_of_counts(cells[0], labelled, positives, [], squared=squared[1:])


def test_probabilities_of_0_and_1_give_a_finite_figure() -> None:
    assert np.isfinite(worst_group_error([0, 1] * 10, np.tile([0.0, 1.0], 10), []))


def test_rows_in_no_group_make_none() -> None:
    rng = np.random.default_rng(3)
    p = rng.uniform(0.2, 0.6, 400)
    y = (rng.random(400) < p).astype(int)
    y[:40] = 1
    apart = np.repeat([1, 0], [40, 360])
    none = np.repeat([-1, 0], [40, 360])
    assert worst_group_error(y, p, [apart]) > worst_group_error(y, p, [none])
    assert worst_group_error(y, p, [none, np.full(400, -1)]) == worst_group_error(y, p, [none])


def test_refusals() -> None:
    p, y = np.full(20, 0.5), np.arange(20) % 2
    with pytest.raises(LengthMismatchError):
        worst_group_error(y, p, [np.zeros(19, dtype=int)])
    with pytest.raises(WeightError):
        worst_group_error(y, p, [], np.zeros(20))
    with pytest.raises(FitError, match="no labelled rows"):
        worst_group_error([], [], [])
    with pytest.raises(OneClassError):
        worst_group_error(np.ones(20), p, [])
    with pytest.raises(FitError):
        worst_group_error(p, y, [])
    with pytest.raises(NonFiniteInputError):
        worst_group_error(y, np.full(20, np.nan), [])
