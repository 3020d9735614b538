import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_calib.calibration.grid import log_odds
from stream_calib.calibration.fit_input import Counts
from stream_calib.calibration.score_groups import ScoreGroups, score_groups


def equal_frequency_groups(score, labelled, positives, n_groups):  # type: ignore
    return score_groups(Counts(score, labelled, positives, len(score), 1, 1), "quantile", n_groups)


def test_distinct_scores_make_groups_of_equal_size() -> None:
    score = np.linspace(0.01, 0.99, 1000)
    groups = equal_frequency_groups(score, np.ones(1000), np.zeros(1000), 20)
    assert groups.labelled.tolist() == [50.0] * 20
    np.testing.assert_allclose(groups.log_odds, log_odds(score.reshape(20, 50).mean(axis=1)), rtol=1e-9)


def test_a_heavy_tie_is_a_group_of_its_own() -> None:
    score = np.array([0.1] * 10 + [0.5] * 80 + [0.6] * 10)
    groups = equal_frequency_groups(score, np.ones(100), (score == 0.6).astype(float), 10)
    assert groups.labelled.tolist() == [10.0, 80.0, 10.0]
    assert groups.positives.tolist() == [0.0, 0.0, 10.0]


def test_scores_beyond_the_grid_are_one_group() -> None:
    score = np.array([0.0, 1e-9, 1e-6, 0.5])
    groups = equal_frequency_groups(score, np.ones(4), np.ones(4), 4)
    assert groups.log_odds.tolist() == [-10.0, 0.0]
    assert groups.labelled.tolist() == [3.0, 1.0]


@pytest.mark.parametrize("n_groups", [1, 3, 10])
def test_a_last_tie_of_next_to_no_weight_makes_no_group_too_many(n_groups: int) -> None:
    weight = np.append(np.full(10, 1e9), 1e-9)
    groups = equal_frequency_groups(np.arange(1, 12) / 12, weight, weight / 2, n_groups)
    assert len(groups.log_odds) == n_groups


@given(
    st.lists(st.tuples(st.integers(0, 30), st.floats(0.01, 100)), min_size=1, max_size=60),
    st.integers(1, 12),
)
def test_groups_rise_strictly_split_no_tie_and_lose_no_weight(rows: list[tuple[int, float]], n_groups: int) -> None:
    rows.sort()
    score = np.array([s for s, _ in rows]) / 30
    weight = np.array([w for _, w in rows])
    groups = equal_frequency_groups(score, weight, weight / 2, n_groups)
    assert (np.diff(groups.log_odds) > 0).all()
    assert len(groups.log_odds) <= min(n_groups, len(set(score.tolist())))
    np.testing.assert_allclose(groups.labelled.sum(), weight.sum())
    np.testing.assert_allclose(groups.positives, groups.labelled / 2)
    ties = np.bincount((score * 30).round().astype(int), weight)
    totals = np.concatenate([[0.0], np.cumsum(ties)])
    for boundary in np.cumsum(groups.labelled):
        assert np.abs(totals - boundary).min() < 1e-9 * totals[-1]
