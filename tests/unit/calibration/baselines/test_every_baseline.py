"""What holds for every baseline: limits, weights, order of rows, rows and cells, the base map."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import expit, logit

from stream_calib.calibration import metrics
from stream_calib.calibration.baselines import BetaCalibration, CenteredIsotonic, Identity, Isotonic, Platt
from stream_calib.calibration.baselines.baseline import Baseline
from stream_calib.calibration.grid import EDGE_LOG_ODDS, N_BINS, locate
from stream_calib.calibration.maps.base_map import BaseMap
from stream_calib.demo.flights import load_flights

ALL: list[type[Baseline]] = [Identity, Platt, BetaCalibration, Isotonic, CenteredIsotonic]

SCORES = [0.2, 0.4, 0.4, 0.4, 0.6, 0.8]
LABELS = [0, 1, 1, 0, 0, 1]

rows = st.lists(st.tuples(st.integers(0, 20), st.booleans(), st.integers(1, 5)), min_size=2, max_size=60).filter(
    lambda r: len({y for _, y, _ in r}) == 2
)
every_baseline = pytest.mark.parametrize("baseline", ALL)


def columns(
    given_rows: list[tuple[int, bool, int]],
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    score = np.array([s for s, _, _ in given_rows]) / 20
    return score, np.array([int(y) for _, y, _ in given_rows]), np.array([w for _, _, w in given_rows])


def fitted_attributes(fitted: Baseline) -> dict[str, Any]:
    """Without those that tell rows and weights apart."""
    found = {name: value for name, value in vars(fitted).items() if name.endswith("_") and name != "rows_"}
    return {name: value.to_lists() if isinstance(value, BaseMap) else value for name, value in found.items()}


@every_baseline
class TestMap:
    @pytest.mark.parametrize("strict", [False, True])
    @pytest.mark.parametrize("p_min", [1e-6, 0.02])
    def test_the_base_map_is_predict_at_every_edge(self, baseline: type[Baseline], strict: bool, p_min: float) -> None:
        rng = np.random.default_rng(4)
        score = rng.beta(0.8, 1.5, 4000)
        fitted = baseline(strict=strict, p_min=p_min).fit(score, rng.random(4000) < expit(1.4 * logit(score) + 0.3))
        base_map = fitted.base_map()
        np.testing.assert_allclose(
            base_map.probability_at(EDGE_LOG_ODDS), fitted.predict(expit(EDGE_LOG_ODDS)), atol=2e-12
        )
        assert BaseMap.from_lists(base_map.to_lists()).edges().tobytes() == base_map.edges().tobytes()

    @given(given_rows=rows, p_min=st.sampled_from([0.0, 1e-6, 0.1]))
    @settings(max_examples=30)
    def test_outputs_do_not_fall_and_stay_within_their_limits(
        self, baseline: type[Baseline], given_rows: list[tuple[int, bool, int]], p_min: float
    ) -> None:
        score, label, _ = columns(given_rows)
        # A Platt fit may fall with the score, and says so where a base map is asked for.
        fitted = baseline(p_min=p_min).fit(np.append(score, [0.0, 1.0] * 20), np.append(label, [0, 1] * 20))
        p = fitted.predict(np.linspace(0, 1, 101))
        assert (np.diff(p) >= 0).all()
        assert p.min() >= p_min
        assert p.max() <= 1 - p_min

    def test_a_strict_map_rises_everywhere_on_the_grid(self, baseline: type[Baseline]) -> None:
        rng = np.random.default_rng(5)
        score = rng.beta(0.8, 1.5, 500)
        label = rng.random(500) < expit(3 * logit(score))
        fitted = baseline(strict=True, p_min=0.05).fit(score, label)
        assert (np.diff(fitted.predict(expit(np.linspace(-10, 10, 2000)))) > 0).all()
        assert (np.diff(fitted.base_map().log_odds_at(EDGE_LOG_ODDS)) > 0).all()

    @given(given_rows=rows)
    @settings(max_examples=30)
    def test_a_weight_is_so_many_rows(self, baseline: type[Baseline], given_rows: list[tuple[int, bool, int]]) -> None:
        score, label, weight = columns(given_rows)
        x = np.linspace(0, 1, 41)
        weighted = baseline().fit(score, label, weight).predict(x)
        repeated = baseline().fit(np.repeat(score, weight), np.repeat(label, weight)).predict(x)
        np.testing.assert_allclose(weighted, repeated, rtol=1e-6, atol=1e-9)

    @given(given_rows=rows, seed=st.integers(0, 1000))
    @settings(max_examples=30)
    def test_the_order_of_rows_means_nothing(
        self, baseline: type[Baseline], given_rows: list[tuple[int, bool, int]], seed: int
    ) -> None:
        score, label, _ = columns(given_rows)
        order = np.random.default_rng(seed).permutation(len(score))
        assert fitted_attributes(baseline().fit(score, label)) == fitted_attributes(
            baseline().fit(score[order], label[order])
        )

    def test_rows_of_weight_0_change_nothing(self, baseline: type[Baseline]) -> None:
        with_zero = baseline().fit([*SCORES, 0.1, 0.5], [*LABELS, 1, 0], [1.0] * 6 + [0.0, 0.0])
        assert fitted_attributes(with_zero) == fitted_attributes(baseline().fit(SCORES, LABELS, [1.0] * 6))


LAWS = {"skewed": (1.2, 4.0, 0.6), "sharp": (0.5, 9.0, 1.3), "both ends": (0.4, 0.4, 0.8)}
"""Parameters of the beta law of the scores, and slope of the truth in their log-odds."""

Drawn = tuple[NDArray[np.float64], NDArray[np.int64]]


@pytest.fixture(scope="module", params=LAWS)
def fitted_and_held_out(request: pytest.FixtureRequest) -> tuple[Drawn, Drawn]:
    rng = np.random.default_rng(6)
    alpha, beta, slope = LAWS[request.param]

    def draw(n: int) -> Drawn:
        score = np.clip(rng.beta(alpha, beta, n), 1e-300, 1 - 1e-16)
        return score, (rng.random(n) < expit(slope * logit(score) - 0.2)).astype(np.int64)

    return draw(1_000_000), draw(200_000)


@every_baseline
def test_a_fit_from_cells_is_the_fit_from_rows(
    baseline: type[Baseline], fitted_and_held_out: tuple[Drawn, Drawn]
) -> None:
    # Isotonic fits of fewer rows differ by more (see KnottedBaseline).
    (score, label), (later_score, later_label) = fitted_and_held_out
    grid_bin = locate(score)[0]
    cells = np.bincount(grid_bin, minlength=N_BINS), np.bincount(grid_bin, label, N_BINS)
    by_rows = baseline().fit(score, label).predict(later_score)
    by_cells = baseline().fit_cells(*cells).predict(later_score)
    assert np.abs(by_rows - by_cells).mean() < 0.002
    assert abs(metrics.log_loss(later_label, by_rows) - metrics.log_loss(later_label, by_cells)) < 1e-4


@every_baseline
def test_cells_and_rows_of_the_flights(baseline: type[Baseline]) -> None:
    flights = load_flights()
    score, label = flights.score[flights.label_row], flights.label.astype(np.int64)
    grid_bin = locate(score)[0]
    cells = np.bincount(grid_bin, minlength=N_BINS), np.bincount(grid_bin, label, N_BINS)
    by_rows, by_cells = baseline().fit(score, label).predict(score), baseline().fit_cells(*cells).predict(score)
    # On its own rows isotonic regression gains by the steps within bins, which is nothing on others.
    difference, gain = (0.003, 2e-4) if baseline is Isotonic else (0.002, 1e-4)
    assert np.abs(by_rows - by_cells).mean() < difference
    assert abs(metrics.log_loss(label, by_rows) - metrics.log_loss(label, by_cells)) < gain
