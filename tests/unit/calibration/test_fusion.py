from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import expit, logit

from stream_calib.calibration import GIRB, metrics
from stream_calib.calibration.fusion import FusionWeights, fit_fusion, fuse
from stream_calib.errors import (
    ConfigurationError,
    FitError,
    LengthMismatchError,
    NonFiniteInputError,
    OneClassError,
    ScoreRangeError,
    WeightError,
)

Floats = NDArray[np.float64]


class TestFuse:
    def test_is_the_weighted_mean_in_log_odds(self) -> None:
        p = np.array([[0.2, 0.9], [0.5, 0.5]])
        fused = fuse(p, FusionWeights.given([1, 3]))
        # Odds 1/4 and 9 with weights 1/4, 3/4.
        odds = 0.25**0.25 * 9**0.75
        np.testing.assert_allclose(fused, [odds / (1 + odds), 0.5], rtol=1e-14)
        np.testing.assert_allclose(fuse(p, FusionWeights.equal(2)), expit([logit([0.2, 0.9]).mean(), 0.0]), rtol=1e-14)

    def test_certain_models_count_as_the_edge_of_the_grid(self) -> None:
        fused = fuse([[0.0, 0.5], [1.0, 1.0], [0.0, 1.0]], FusionWeights.equal(2))
        np.testing.assert_allclose(fused, expit([-5.0, 10.0, 0.0]), rtol=1e-12)

    def test_a_model_without_a_score_leaves_the_mean_to_the_others(self) -> None:
        p = np.array([[0.2, np.nan, 0.9], [np.nan, np.nan, 0.3], [np.nan, 0.4, np.nan], [np.nan] * 3])
        fused = fuse(p, FusionWeights.given([0.3, 0.0, 0.7]))
        np.testing.assert_allclose(fused[:2], [expit(0.3 * logit(0.2) + 0.7 * logit(0.9)), 0.3], rtol=1e-12)
        # Only a model of weight 0, and none at all.
        assert np.isnan(fused[2:]).all()

    @given(st.integers(0, 10_000), st.integers(1, 5))
    @settings(max_examples=40)
    def test_lies_between_its_models_and_has_the_same_bits_alone(self, seed: int, models: int) -> None:
        rng = np.random.default_rng(seed)
        p = rng.uniform(0.001, 0.999, (37, models))
        weights = FusionWeights.given(rng.uniform(0.01, 1, models).tolist())
        fused = fuse(p, weights)
        assert (fused >= p.min(axis=1) - 1e-12).all()
        assert (fused <= p.max(axis=1) + 1e-12).all()
        assert [fuse(row[None, :], weights)[0] for row in p] == fused.tolist()
        raised = p.copy()
        raised[:, 0] = np.minimum(raised[:, 0] + 0.0005, 0.9999)
        assert (fuse(raised, weights) > fused).all()

    @pytest.mark.parametrize(
        ("probabilities", "error", "message"),
        [
            ([[0.5, 1.2]], ScoreRangeError, "1 probabilities lie outside"),
            ([[0.5, np.inf]], ScoreRangeError, "fuse calibrated probabilities"),
            ([[0.5, 0.5, 0.5]], LengthMismatchError, "probabilities of 3 models, 2 weights"),
            ([0.5, 0.5], FitError, r"shape \(2,\)"),
            ([["a", "b"]], FitError, "give numbers"),
        ],
    )
    def test_refuses(self, probabilities: Any, error: type[FitError], message: str) -> None:
        with pytest.raises(error, match=message):
            fuse(probabilities, FusionWeights.equal(2))

    def test_no_rows_are_no_scores(self) -> None:
        assert fuse(np.empty((0, 2)), FusionWeights.equal(2)).shape == (0,)


class TestGivenWeights:
    def test_are_brought_to_sum_1(self) -> None:
        assert FusionWeights.given([1, 3]).weights == (0.25, 0.75)
        assert FusionWeights.equal(4).weights == (0.25,) * 4
        assert FusionWeights.given([2, 0]).standard_errors == (None, None)

    @pytest.mark.parametrize(
        ("weights", "message"),
        [
            ([1, -1], "0 or more"),
            ([0, 0], "above 0"),
            ([np.nan, 1], "finite"),
            ([], "at least one model"),
        ],
    )
    def test_refuse(self, weights: list[float], message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            FusionWeights.given(weights)


def two_experts(seed: int, n: int, weights: tuple[float, float] = (0.8, 1.2)) -> tuple[Floats, Floats]:
    """Calibrated log-odds' building blocks (n, 2): what each model sees, and labels of a law additive in both."""
    rng = np.random.default_rng(seed)
    seen = rng.normal(size=(n, 2))
    label = (rng.random(n) < expit(weights[0] * seen[:, 0] + weights[1] * seen[:, 1] - 0.3)).astype(np.float64)
    return seen, label


class TestFit:
    def test_finds_the_proportions_of_the_law(self) -> None:
        seen, label = two_experts(1, 100_000)
        # Log-odds 2 x too wide and 2 x too narrow: weights .4 and 2.4, in shares 1/7 and 6/7.
        fitted = fit_fusion(expit(seen * [2.0, 0.5]), label, ridge=0.0)
        error = fitted.standard_errors[0]
        assert error is not None
        assert fitted.weights[0] == pytest.approx(1 / 7, abs=4 * error)
        assert sum(fitted.weights) == pytest.approx(1, abs=1e-11)
        assert fitted.rows == 100_000

    def test_standard_errors_are_those_of_repeated_fits(self) -> None:
        fits = [fit_fusion(expit(seen), label) for seen, label in (two_experts(seed, 2000) for seed in range(300))]
        first = np.array([fit.weights[0] for fit in fits])
        told = np.array([fit.standard_errors[0] for fit in fits], dtype=np.float64)
        # The spread of 300 has a relative standard error of 1 / sqrt(600) = .041; three of them.
        assert told.mean() == pytest.approx(first.std(ddof=1), rel=0.125)

    def test_standard_errors_hold_for_thinned_rows_too(self) -> None:
        # Negatives kept with probability 1/5, weight 5: model-based errors of the weighted fit would be too small.
        spread, told = [], []
        for seed in range(300):
            seen, label = two_experts(seed, 4000)
            kept = (label == 1) | (np.random.default_rng(10_000 + seed).random(4000) < 0.2)
            fit = fit_fusion(expit(seen[kept]), label[kept], np.where(label[kept] == 1, 1.0, 5.0))
            spread.append(fit.weights[0])
            told.append(fit.standard_errors[0] or 0.0)
        assert np.mean(told) == pytest.approx(np.std(spread, ddof=1), rel=0.125)

    def test_models_that_say_the_same_get_equal_weights_and_a_large_error(self) -> None:
        seen, label = two_experts(2, 3000)
        p = expit(seen[:, :1] * [1.0, 1.0])
        fitted = fit_fusion(p, label)
        np.testing.assert_allclose(fitted.weights, [0.5, 0.5], rtol=1e-6)
        assert min(error or 0.0 for error in fitted.standard_errors) > 0.1

    def test_a_model_that_speaks_against_the_outcome_is_held_at_0(self) -> None:
        seen, label = two_experts(3, 5000, (1.0, -0.7))
        fitted = fit_fusion(expit(seen), label)
        assert fitted.weights == (1.0, 0.0)
        assert fitted.standard_errors == (0.0, None)

    def test_no_model_speaks_for_the_outcome(self) -> None:
        seen, label = two_experts(4, 5000, (-1.0, -0.7))
        with pytest.raises(FitError, match="no model's probability speaks for the outcome"):
            fit_fusion(expit(seen), label)

    def test_rows_without_all_scores_or_without_weight_are_left_out(self) -> None:
        seen, label = two_experts(5, 600)
        p = expit(seen)
        holed = np.concatenate([p, [[0.4, np.nan], [np.nan, np.nan], [0.1, 0.2]]])
        fitted = fit_fusion(holed, np.append(label, [1, 0, 1]), np.append(np.ones(600), [1, 1, 0]))
        assert fitted == fit_fusion(p, label)
        assert fitted.rows == 600

    def test_a_weight_is_so_many_rows(self) -> None:
        seen, label = two_experts(6, 200)
        weight = np.random.default_rng(6).integers(1, 5, 200)
        weighted = fit_fusion(expit(seen), label, weight)
        repeated = fit_fusion(np.repeat(expit(seen), weight, axis=0), np.repeat(label, weight))
        np.testing.assert_allclose(weighted.weights, repeated.weights, rtol=1e-9)

    def test_the_order_of_models_and_rows_means_nothing(self) -> None:
        seen, label = two_experts(7, 500)
        order = np.random.default_rng(7).permutation(500)
        fitted, turned = fit_fusion(expit(seen), label), fit_fusion(expit(seen[order, ::-1]), label[order])
        np.testing.assert_allclose(turned.weights, fitted.weights[::-1], rtol=1e-10)

    def test_classes_that_the_models_separate(self) -> None:
        p = np.array([[0.1, 0.3], [0.2, 0.2], [0.8, 0.9], [0.9, 0.6]])
        assert np.isfinite(fit_fusion(p, [0, 0, 1, 1]).weights).all()

    @pytest.mark.parametrize(
        ("probabilities", "label", "weight", "error", "message"),
        [
            ([[0.5, 0.4]] * 2, [0, 1, 1], None, LengthMismatchError, r"2 rows, labels \(3,\)"),
            ([[0.5, 0.4]] * 2, [0, 1], [1], LengthMismatchError, r"weights \(1,\)"),
            ([[0.5, 0.4]] * 2, [1, 1], None, OneClassError, "2 of 2 rows have a score of every model, 2 of them"),
            ([[0.5, np.nan], [0.5, 0.4]], [0, 1], None, OneClassError, "1 of 2 rows"),
            ([], [], None, FitError, "shape"),
            ([[0.5, 2.0]] * 2, [0, 1], None, ScoreRangeError, "outside"),
            ([[0.5, 0.4]] * 2, [0, np.nan], None, NonFiniteInputError, "1 labels are NaN"),
            ([[0.5, 0.4]] * 2, [0, 1], [1, np.inf], NonFiniteInputError, "1 weights are NaN"),
            ([[0.5, 0.4]] * 2, [0, 2], None, FitError, "labels must be 0 or 1"),
            ([[0.5, 0.4]] * 2, [0, None], None, FitError, "labels have dtype object"),
            ([[0.5, 0.4]] * 2, [0, 1], [1, -1], WeightError, "1 weights are negative"),
            ([[0.5, 0.4]] * 2, [0, 1], [0, 0], WeightError, "all weights are 0"),
        ],
    )
    def test_refuses(
        self, probabilities: Any, label: list[Any], weight: Any, error: type[FitError], message: str
    ) -> None:
        with pytest.raises(FitError, match=message) as raised:
            fit_fusion(probabilities, label, weight)
        assert type(raised.value) is error

    def test_a_negative_ridge(self) -> None:
        with pytest.raises(ConfigurationError, match="ridge = -1"):
            fit_fusion([[0.5, 0.4]] * 2, [0, 1], ridge=-1)


class TestOrderOfCalibrationAndFusion:
    """Two badly scaled models: calibrating, then fusing, then calibrating beats fusing raw scores and each model."""

    N = 60_000

    def scores(self, seen: Floats) -> Floats:
        """The first model is overconfident without bounds, the second timid, biased and bent."""
        first = 2.5 * seen[:, 0] + 0.6 * seen[:, 0] ** 3
        second = 0.2 * seen[:, 1] + 0.15 * np.maximum(seen[:, 1], 0) ** 2 + 2.0
        return np.stack([expit(first), expit(second)], axis=1)

    @pytest.mark.parametrize("fitted", [False, True])
    @pytest.mark.parametrize("seed", [11, 12, 13])
    def test_on_held_out_log_loss(self, seed: int, fitted: bool) -> None:
        windows = [two_experts(100 * seed + part, self.N, (1.0, 1.2)) for part in range(4)]
        (own, own_label), (joined, joined_label), (later, later_label), (held_out, held_out_label) = (
            (self.scores(seen), label) for seen, label in windows
        )
        calibrators = [GIRB().fit(own[:, model], own_label) for model in range(2)]

        def calibrated(raw: Floats) -> Floats:
            return np.stack([calibrators[model].predict(raw[:, model]) for model in range(2)], axis=1)

        def as_they_are(raw: Floats) -> Floats:
            return raw

        row_loss = {}
        for order in (calibrated, as_they_are):
            weights = fit_fusion(order(joined), joined_label) if fitted else FusionWeights.equal(2)
            last = GIRB().fit(fuse(order(later), weights), later_label)
            row_loss[order.__name__] = _losses(held_out_label, last.predict(fuse(order(held_out), weights)))
        singles = [_losses(held_out_label, calibrated(held_out)[:, model]) for model in range(2)]
        for other in (row_loss["as_they_are"], *singles):
            gain = other - row_loss["calibrated"]
            # Paired over the held-out rows: better by more than four standard errors.
            assert gain.mean() > 4 * gain.std() / np.sqrt(self.N)
        assert metrics.ece(held_out_label, last.predict(fuse(held_out, weights))) < 0.02


def _losses(label: Floats, p: Floats) -> Floats:
    return -(label * np.log(p) + (1 - label) * np.log1p(-p))
