import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression

from stream_calib.calibration import GIRB
from stream_calib.calibration.grid import EDGE_LOG_ODDS, log_odds
from stream_calib.calibration.maps.base_map import BaseMap
from stream_calib.calibration.platt import fit_platt
from stream_calib.errors import (
    ConfigurationError,
    WeightError,
)

PLAIN: dict[str, Any] = {"prior_centre": None, "prior_strength": 0.0, "p_min": 1e-12, "strict": False}
"""Prior smoothing, p_min and strict increase off."""

TIED_SCORES = [0.2, 0.4, 0.4, 0.4, 0.6, 0.8]
TIED_LABELS = [0, 1, 1, 0, 0, 1]


class TestCasesFromTheField:
    def test_ties_keep_their_weight(self) -> None:
        fitted = GIRB(**PLAIN).fit(TIED_SCORES, TIED_LABELS)
        np.testing.assert_allclose(fitted.predict([0.2, 0.4, 0.6, 0.8]), [0, 0.5, 0.5, 1], atol=1e-9)

    def test_rows_of_weight_0_change_nothing(self) -> None:
        weight = [1.0] * 6 + [0.0, 0.0]
        with_zero = GIRB().fit([*TIED_SCORES, 0.1, 0.5], [*TIED_LABELS, 1, 0], weight)
        without = GIRB().fit(TIED_SCORES, TIED_LABELS, [1.0] * 6)
        assert with_zero.base_map().to_lists() == without.base_map().to_lists()
        assert without.base_map().to_lists() == GIRB().fit(TIED_SCORES, TIED_LABELS).base_map().to_lists()

    def test_weights_that_are_all_0_are_refused(self) -> None:
        with pytest.raises(WeightError, match="all weights are 0"):
            GIRB().fit(TIED_SCORES, TIED_LABELS, [0.0] * 6)

    def test_scores_beyond_the_fitted_range_get_the_value_at_its_end(self) -> None:
        rng = np.random.default_rng(3)
        score = np.concatenate([[0.1, 0.8], rng.uniform(0.1, 0.8, 500)])
        label = rng.random(502) < score
        fitted = GIRB(**PLAIN).fit(score, label)
        ends = fitted.predict([0.1, 0.8])
        assert fitted.predict([0.05, 0.95, 0.0, 1.0]).tolist() == [ends[0], ends[1], ends[0], ends[1]]
        stored = BaseMap.from_lists(fitted.base_map().to_lists())
        x = np.linspace(-10, 10, 99)
        assert stored.probability_at(x).tobytes() == fitted.base_map().probability_at(x).tobytes()

    def test_a_constant_score_is_one_group(self) -> None:
        label = np.arange(1000) < 37
        fitted = GIRB(n_groups=20, **PLAIN).fit(np.full(1000, 0.5), label)
        assert len(fitted.base_map().log_odds) == 1
        np.testing.assert_allclose(fitted.predict([0.2, 0.5, 0.9]), 0.037, rtol=1e-12)

    def test_piled_up_scores_make_no_duplicate_edges(self) -> None:
        score = np.concatenate([np.zeros(900), np.arange(1, 101) / 100])
        label = np.zeros(1000, dtype=int)
        label[:9] = 1
        label[940:] = 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fitted = GIRB(n_groups=10, **PLAIN).fit(score, label)
        assert (np.diff(fitted.base_map().log_odds) > 0).all()
        assert fitted.predict([0.0])[0] == pytest.approx(0.01, rel=1e-12)

    def test_negatives_thinned_before_the_stream_count_by_their_weight(self) -> None:
        label = np.repeat([1, 0], 100)
        weight = np.where(label == 1, 1.0, 1 / 0.01)
        fitted = GIRB(**PLAIN).fit(np.full(200, 0.6), label, weight)
        assert fitted.predict([0.6])[0] == pytest.approx(100 / 10_100, rel=1e-12)
        with_prior = GIRB().fit(np.full(200, 0.6), label, weight)
        assert with_prior.predict([0.6])[0] == pytest.approx(100 / 10_100, rel=0.02)


@pytest.mark.parametrize(
    "bad",
    [
        {"n_groups": 0},
        {"strategy": "quantiles"},
        {"strategy": (0.8, 0.5)},
        {"representative": "mode"},
        {"min_group_share": -0.1},
        {"min_group_share": 1.1},
        {"min_group_rows": np.nan},
        {"min_group_positives": np.inf},
        {"prior_strength": -1.0},
        {"prior_centre": "score"},
        {"shape": "cubic"},
        {"end_slopes": (1.0, 0.5)},
        {"end_slopes": (-1.0, 0.5)},
        {"end_slopes": (0.5,)},
        {"end_slopes": (0.5, np.inf)},
        {"p_min": 0.5},
        {"p_min": -1.0},
    ],
)
def test_parameters_without_sense(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(bad))):
        GIRB(**bad).fit(TIED_SCORES, TIED_LABELS)


class TestPrior:
    def test_counts_as_rows_of_the_base_rate(self) -> None:
        score, label = np.repeat([0.2, 0.8], 50), np.tile([0, 0, 0, 0, 1], 20)
        label[:50] = 0
        fitted = GIRB(prior_centre="base_rate", prior_strength=25.0, p_min=1e-12, strict=False).fit(score, label)
        np.testing.assert_allclose(fitted.predict([0.2, 0.8]), [2.5 / 75, 12.5 / 75], rtol=1e-9)

    def test_counts_as_rows_of_a_platt_fit_of_the_same_groups(self) -> None:
        score = np.repeat([0.1, 0.5, 0.9], 100)
        positives = np.array([5.0, 60.0, 70.0])
        label = np.concatenate([np.arange(100) < k for k in positives])
        platt = fit_platt(log_odds(np.array([0.1, 0.5, 0.9])), np.full(3, 100.0), positives)
        centre = expit(platt.log_odds_at(log_odds(np.array([0.1, 0.5, 0.9]))))
        fitted = GIRB(prior_strength=30.0, p_min=1e-12, strict=False).fit(score, label)
        np.testing.assert_allclose(fitted.predict([0.1, 0.5, 0.9]), (positives + 30 * centre) / 130, rtol=1e-9)
        assert np.abs(positives / 100 - centre).max() > 0.05

    def test_of_strength_0_is_no_prior(self) -> None:
        with_0 = GIRB(prior_strength=0.0).fit(TIED_SCORES, TIED_LABELS)
        without = GIRB(prior_centre=None).fit(TIED_SCORES, TIED_LABELS)
        assert with_0.base_map().to_lists() == without.base_map().to_lists()


class TestGroups:
    def test_business_edges_are_fitted_to_each_part(self) -> None:
        score = np.repeat([0.1, 0.3, 0.6, 0.7, 0.9], 10)
        label = np.concatenate([np.arange(10) < k for k in (0, 2, 4, 6, 9)])
        fitted = GIRB(strategy=(0.5, 0.8), shape="step", **PLAIN).fit(score, label)
        np.testing.assert_allclose(fitted.predict([0.0, 0.49, 0.5, 0.79, 0.8, 1.0]), [0.1, 0.1, 0.5, 0.5, 0.9, 0.9])
        np.testing.assert_allclose(fitted.rates_, [0.1, 0.5, 0.9])
        assert fitted.groups_.positives.tolist() == [2.0, 10.0, 9.0]

    def test_sparse_ones_are_merged(self) -> None:
        score = np.repeat([0.1, 0.6, 0.9], [50, 50, 4])
        label = np.concatenate([np.arange(50) < 5, np.arange(50) < 20, np.arange(4) < 4])
        both = {"strategy": (0.5, 0.8), **PLAIN}
        assert GIRB(**both).fit(score, label).rates_.tolist() == [0.1, 0.4, 1.0]
        for limit in ({"min_group_share": 0.05}, {"min_group_rows": 5}, {"min_group_positives": 1}):
            np.testing.assert_allclose(GIRB(**both, **limit).fit(score, label).rates_, [0.1, 24 / 54])

    def test_a_median_stands_for_its_group(self) -> None:
        score, label = [0.1, 0.2, 0.45, 0.6, 0.7, 0.95], [0, 0, 1, 0, 1, 1]
        fitted = GIRB(strategy=(0.5,), representative="median", **PLAIN).fit(score, label)
        np.testing.assert_allclose(fitted.predict([0.2, 0.7]), [1 / 3, 2 / 3])


class TestSteps:
    def test_every_score_of_a_group_has_its_rate(self) -> None:
        rng = np.random.default_rng(8)
        score = rng.random(2000)
        fitted = GIRB(n_groups=10, shape="step", **PLAIN).fit(score, rng.random(2000) < score)
        p = fitted.predict(np.sort(score))
        member = np.repeat(np.arange(10), fitted.groups_.labelled.astype(int))
        np.testing.assert_allclose(p, fitted.rates_[member], rtol=1e-9)

    def test_ties_nearer_than_a_step_stay_in_order(self) -> None:
        score = 0.5 + np.arange(40) * 1e-11
        label = np.arange(40) >= 20
        fitted = GIRB(n_groups=40, shape="step", **PLAIN).fit(score, label)
        p = fitted.predict(np.concatenate([[0.4], score, [0.6]]))
        assert (np.diff(p) >= 0).all()
        assert (p[0], p[-1]) == (pytest.approx(0.0, abs=1e-9), pytest.approx(1.0, abs=1e-9))

    def test_one_group_has_no_step(self) -> None:
        fitted = GIRB(n_groups=1, shape="step", **PLAIN).fit(TIED_SCORES, TIED_LABELS)
        np.testing.assert_allclose(fitted.predict([0.0, 0.4, 1.0]), 0.5)


class TestEndSlopes:
    def fitted(self, **parameters: Any) -> GIRB:
        rng = np.random.default_rng(9)
        score = rng.uniform(0.2, 0.8, 50_000)
        label = rng.random(50_000) < expit(0.7 * logit(score) + 0.1)
        return GIRB(**parameters, n_groups=10, p_min=1e-9, strict=False).fit(score, label)

    @pytest.mark.parametrize("strict", [True, False])
    @pytest.mark.parametrize(
        ("bounds", "slope"), [((0.0, 0.0), 0.0), ((1.0, 1.0), 1.0), ((0.0, 0.5), 0.5), ((1.2, 3.0), 1.2)]
    )
    def test_the_map_goes_on_in_log_odds_within_the_bounds(
        self, bounds: tuple[float, float], slope: float, strict: bool
    ) -> None:
        fitted = self.fitted(end_slopes=bounds).set_params(strict=strict)
        fitted.fit_groups(fitted.groups_)
        edges = EDGE_LOG_ODDS[(np.abs(EDGE_LOG_ODDS) > 2) & (np.abs(EDGE_LOG_ODDS) < 8)]
        p = logit(fitted.predict(expit(edges)))
        inner = logit(fitted.predict(expit(fitted.groups_.log_odds[[0, -1]])))
        expected = np.where(
            edges < 0,
            inner[0] + slope * (edges - fitted.groups_.log_odds[0]),
            inner[1] + slope * (edges - fitted.groups_.log_odds[-1]),
        )
        if strict:
            np.testing.assert_allclose(expit(p), expit(expected), rtol=0, atol=5e-6)
        else:
            np.testing.assert_allclose(p, expected, atol=1e-8)

    def test_wide_bounds_leave_the_platt_slope(self) -> None:
        fitted = self.fitted(end_slopes=(0.0, 10.0))
        p = logit(fitted.predict(expit([-6.0, -4.0, 4.0, 6.0])))
        assert (p[1] - p[0]) / 2 == pytest.approx(0.7, abs=0.05)
        assert (p[3] - p[2]) / 2 == pytest.approx((p[1] - p[0]) / 2, abs=1e-8)

    def test_without_them_the_map_is_constant_there(self) -> None:
        p = self.fitted().predict([0.01, 0.1, 0.9, 0.99])
        assert (p[0], p[2]) == (p[1], p[3])

    def test_ends_at_0_and_1_stay(self) -> None:
        fitted = GIRB(end_slopes=(1.0, 1.0), **PLAIN).fit([0.2, 0.3, 0.7, 0.8], [0, 0, 1, 1])
        np.testing.assert_allclose(fitted.predict([0.0, 0.1, 0.9, 1.0]), [0, 0, 1, 1], atol=1e-11)


@pytest.mark.parametrize("centre", ["base_rate", None])
def test_with_a_group_for_each_score_it_is_isotonic_regression(centre: Any) -> None:
    rng = np.random.default_rng(10)
    score = rng.integers(1, 40, 3000) / 40
    label = rng.random(3000) < score**2
    weight = rng.uniform(0.5, 2, 3000)
    fitted = GIRB(n_groups=10**6, prior_centre=centre, prior_strength=0.0, p_min=1e-12, strict=False)
    theirs = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(score, label, weight)
    np.testing.assert_allclose(fitted.fit(score, label, weight).predict(score), theirs.predict(score), atol=1e-11)


rows = st.lists(st.tuples(st.integers(0, 20), st.booleans(), st.integers(1, 5)), min_size=2, max_size=60).filter(
    lambda r: len({y for _, y, _ in r}) == 2
)


@given(rows)
@settings(max_examples=60)
def test_a_weight_is_so_many_rows(given_rows: list[tuple[int, bool, int]]) -> None:
    score = np.array([s for s, _, _ in given_rows]) / 20
    label = np.array([y for _, y, _ in given_rows])
    weight = np.array([w for _, _, w in given_rows])
    x = np.linspace(0, 1, 41)
    weighted = GIRB(n_groups=5).fit(score, label, weight).predict(x)
    repeated = GIRB(n_groups=5).fit(np.repeat(score, weight), np.repeat(label, weight)).predict(x)
    np.testing.assert_allclose(weighted, repeated, rtol=1e-9)


@given(rows, st.sampled_from(["platt", "base_rate", None]), st.integers(1, 30))
@settings(max_examples=60)
def test_outputs_rise_strictly_within_their_limits(
    given_rows: list[tuple[int, bool, int]], centre: Any, n_groups: int
) -> None:
    score = np.array([s for s, _, _ in given_rows]) / 20
    label = np.array([y for _, y, _ in given_rows])
    fitted = GIRB(n_groups=n_groups, prior_centre=centre, p_min=0.01).fit(score, label)
    p = fitted.predict(np.linspace(0.001, 0.999, 99))
    assert (np.diff(p) > 0).all()
    assert p.min() >= 0.01
    assert p.max() <= 0.99


@given(rows)
@settings(max_examples=40)
def test_the_mean_prediction_of_the_groups_is_the_base_rate_without_a_prior(
    given_rows: list[tuple[int, bool, int]],
) -> None:
    score = np.array([s for s, _, _ in given_rows]) / 20
    label = np.array([y for _, y, _ in given_rows])
    p = GIRB(n_groups=10_000, **PLAIN).fit(score, label).predict(score)
    # With so many groups every distinct score is one.
    assert p.mean() == pytest.approx(label.mean(), abs=1e-9)
