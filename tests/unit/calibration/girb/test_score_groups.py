from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from stream_calib.calibration.fit_input import Counts, counts_by_score, counts_of_cells, counts_of_rows
from stream_calib.calibration.girb.score_groups import ScoreGroups, score_groups
from stream_calib.calibration.girb.sparse_groups import SparseLimits, merged_starts
from stream_calib.calibration.grid import EDGE_LOG_ODDS, N_BINS, locate, log_odds
from stream_calib.calibration.platt import fit_platt
from stream_calib.errors import ConfigurationError


def equal_frequency_groups(
    score: NDArray[np.float64], labelled: NDArray[np.float64], positives: NDArray[np.float64], n_groups: int
) -> ScoreGroups:
    return score_groups(counts_by_score(score, labelled, positives), "quantile", n_groups)


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


def _counts(score: ArrayLike, weight: ArrayLike | None = None) -> Counts:
    score = np.asarray(score)
    return counts_of_rows(score, np.arange(len(score)) % 2, weight)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 3)), min_size=1, max_size=60),
    st.integers(1, 12),
    st.sampled_from(["quantile", "uniform", "information", (0.3, 0.5, 0.51)]),
    st.sampled_from(["mean", "median"]),
)
def test_rows_their_weights_and_their_sums_make_the_same_groups(
    rows: list[tuple[int, int]], n_groups: int, strategy: Any, representative: Any
) -> None:
    score = np.array([s for s, _ in rows]) / 30
    weight = np.array([w for _, w in rows])
    label = np.arange(len(rows)) % 2
    tie = (score * 30).round().astype(int)
    sums, positives = (np.bincount(tie, of, 31).astype(np.float64) for of in (weight, weight * label))
    made = [
        score_groups(counts, strategy, n_groups, representative=representative)
        for counts in (
            counts_of_rows(score, label, weight),
            counts_of_rows(np.repeat(score, weight), np.repeat(label, weight), None),
            counts_by_score(np.arange(31) / 30, sums, positives),
        )
    ]
    for other in made[1:]:
        for column in ("log_odds", "labelled", "positives", "boundaries"):
            np.testing.assert_allclose(getattr(other, column), getattr(made[0], column), rtol=1e-9, atol=1e-9)
    assert (np.diff(made[0].boundaries) >= 0).all()
    # Representatives lie on their own side of each boundary.
    assert (made[0].log_odds[:-1] <= made[0].boundaries + 1e-9).all()
    assert (made[0].boundaries <= made[0].log_odds[1:] + 1e-9).all()


class TestUniform:
    def test_groups_are_of_equal_width_and_hold_their_lower_edge(self) -> None:
        groups = score_groups(_counts([0.0, 0.24, 0.25, 0.5, 0.74, 0.75, 1.0]), "uniform", 4)
        assert groups.labelled.tolist() == [2.0, 1.0, 2.0, 2.0]
        np.testing.assert_allclose(groups.boundaries, log_odds(np.array([0.25, 0.5, 0.75])), rtol=1e-11)

    def test_empty_ones_are_none(self) -> None:
        groups = score_groups(_counts([0.1, 0.15, 0.9, 0.95]), "uniform", 10)
        assert groups.labelled.tolist() == [2.0, 2.0]
        # The lower group ends at its own upper edge.
        np.testing.assert_allclose(groups.boundaries, log_odds(np.array([0.2])), rtol=1e-11)


class TestEdges:
    def test_business_edges_are_the_groups(self) -> None:
        groups = score_groups(_counts([0.1, 0.49, 0.5, 0.79, 0.8, 0.9]), (0.5, 0.8), 100)
        assert groups.labelled.tolist() == [2.0, 2.0, 2.0]
        np.testing.assert_allclose(groups.boundaries, log_odds(np.array([0.5, 0.8])), rtol=1e-11)

    def test_a_grid_bin_belongs_where_its_centre_lies(self) -> None:
        n = np.ones(N_BINS)
        groups = score_groups(counts_of_cells(n, n / 2), (0.5, 0.8), 100)
        # log-odds of .8 is 1.386: bins up to the one from 1.35 to 1.40, whose centre 1.375 is lower, lie below it.
        assert groups.labelled.tolist() == [201.0, 28.0, 173.0]

    @pytest.mark.parametrize(
        "edges", [(), (0.0, 0.5), (0.5, 0.5), (0.8, 0.5), (0.5, 1.0), (np.nan,), ((0.1, 0.2),), ("a",)]
    )
    def test_edges_without_sense_are_refused(self, edges: Any) -> None:
        with pytest.raises(ConfigurationError, match=r"inner edges that increase in \(0, 1\)"):
            score_groups(_counts([0.1, 0.9]), edges, 2)


class TestInformation:
    def test_groups_carry_about_equal_information_about_a_shift_of_the_log_odds(self) -> None:
        rng = np.random.default_rng(5)
        score = expit(rng.normal(-2, 2, 50_000))
        counts = counts_of_rows(score, rng.random(50_000) < score, None)
        groups = score_groups(counts, "information", 20)
        fine = score_groups(counts, "quantile", 1000)
        p = expit(fit_platt(fine.log_odds, fine.labelled, fine.positives).log_odds_at(log_odds(counts.score)))
        ends = np.cumsum(groups.labelled).astype(int)
        shares = np.diff(np.append(0.0, np.cumsum(p * (1 - p))[ends - 1])) / (p * (1 - p)).sum()
        # Within the share of one row.
        np.testing.assert_allclose(shares, 1 / 20, atol=2 * 0.25 / (p * (1 - p)).sum())
        # Where the outcome is all but sure there is little to learn from a row, so there are many in a group.
        assert groups.labelled[0] > 5 * groups.labelled[-1]

    def test_is_quantile_where_the_score_says_nothing(self) -> None:
        counts = _counts(np.linspace(0.1, 0.9, 1000))
        assert score_groups(counts, "information", 10).labelled.tolist() == [100.0] * 10


class TestMedian:
    def test_is_the_lower_median_of_the_rows(self) -> None:
        score = np.array([0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.9])
        groups = score_groups(_counts(score), (0.5,), 2, representative="median")
        np.testing.assert_allclose(expit(groups.log_odds), [0.2, 0.7], rtol=1e-9)

    def test_is_that_of_the_weight(self) -> None:
        groups = score_groups(_counts([0.1, 0.2, 0.3, 0.9], [1.0, 1.0, 5.0, 1.0]), (0.5,), 2, representative="median")
        np.testing.assert_allclose(expit(groups.log_odds), [0.3, 0.9], rtol=1e-9)


class TestMerging:
    def kept(self, n: list[float], k: list[float], **limits: float) -> list[int]:
        made = merged_starts(np.arange(len(n)), np.array(n), np.array(k), SparseLimits(**limits))
        return [int(i) for i in made]

    def test_the_lightest_goes_to_its_lighter_neighbour(self) -> None:
        assert self.kept([50, 9, 40, 100], [5, 1, 4, 10], rows=10) == [0, 1, 3]
        assert self.kept([40, 9, 50, 100], [5, 1, 4, 10], rows=10) == [0, 2, 3]

    def test_among_equals_the_lower_one_is_taken(self) -> None:
        assert self.kept([50, 9, 50], [1, 1, 1], rows=10) == [0, 2]
        # The first goes up, as it has no other neighbour; the third then joins the two.
        assert self.kept([9, 9, 9], [1, 1, 1], rows=10) == [0]

    def test_shares_and_classes_count_too(self) -> None:
        assert self.kept([5, 45, 50], [1, 1, 1], share=0.1) == [0, 2]
        assert self.kept([50, 60, 70], [0, 5, 9], positives=3) == [0, 2]
        assert self.kept([50, 60, 70], [5, 5, 70], positives=3) == [0, 1]

    def test_one_group_is_left_where_all_is_sparse(self) -> None:
        assert self.kept([1, 2, 3], [0, 0, 0], rows=100, positives=1) == [0]

    @given(
        st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), min_size=1, max_size=40),
        st.integers(0, 60),
        st.integers(0, 20),
        st.floats(0, 0.3),
    )
    def test_no_group_is_left_sparse(
        self, groups: list[tuple[int, int]], rows: int, positives: int, share: float
    ) -> None:
        n = np.array([n for n, _ in groups], dtype=float)
        k = np.minimum(n, np.array([k for _, k in groups]))
        kept = merged_starts(np.arange(len(n)), n, k, SparseLimits(share, rows, positives))
        assert kept[0] == 0
        merged_n, merged_k = np.add.reduceat(n, kept), np.add.reduceat(k, kept)
        if len(kept) > 1:
            assert merged_n.min() >= max(rows, share * n.sum())
            assert min(merged_k.min(), (merged_n - merged_k).min()) >= positives

    def test_the_groups_merged_have_the_mean_score_of_all_their_rows(self) -> None:
        counts = _counts([0.1, 0.2, 0.3, 0.6, 0.62, 0.64, 0.9])
        groups = score_groups(counts, (0.5, 0.8), 3, limits=SparseLimits(rows=2))
        assert groups.labelled.tolist() == [3.0, 4.0]
        np.testing.assert_allclose(expit(groups.log_odds), [0.2, 0.69], rtol=1e-9)
        np.testing.assert_allclose(groups.boundaries, [0.0], atol=1e-12)


def test_groups_of_cells_end_at_edges_of_the_grid() -> None:
    score = np.random.default_rng(7).uniform(0.2, 0.8, 5000)
    n = np.bincount(locate(score)[0], minlength=N_BINS)
    groups = score_groups(counts_of_cells(n, n * 0.5), "quantile", 10)
    assert len(groups.boundaries) == 9
    assert np.abs(groups.boundaries[:, None] - EDGE_LOG_ODDS).min(axis=1).max() < 1e-9
