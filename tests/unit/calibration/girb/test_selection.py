"""GIRBCV: folds, the rule, and what it chooses."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import expit

from stream_calib.calibration import GIRB, GIRBCV, metrics
from stream_calib.calibration.fit_input import counts_by_score, counts_of_rows
from stream_calib.calibration.girb.folds import folds_of_counts, folds_of_rows, thinned
from stream_calib.calibration.girb.selection import SelectionCurve
from stream_calib.calibration.grid import N_BINS, locate
from stream_calib.errors import (
    ConfigurationError,
    FitError,
    LengthMismatchError,
    OneClassError,
    TooFewPositivesError,
    TooFewRowsError,
    WeightError,
)


def _curve(loss: list[list[float]]) -> SelectionCurve:
    return SelectionCurve(
        np.arange(1, len(loss) + 1), np.zeros(len(loss)), np.arange(1.0, len(loss) + 1), np.array(loss)
    )


class TestRule:
    def test_takes_the_simplest_within_one_standard_error_of_the_best(self) -> None:
        # Against the last, the best one, the differences are .1, .1, .4 with mean .2 and standard error .1; then
        # .05, .05, .2 with mean .1 and standard error .05; then -.2, .2, .2 with mean .067 and standard error .133.
        best = [1.0, 2.0, 3.0]
        curve = _curve([[1.1, 2.1, 3.4], [1.05, 2.05, 3.2], [0.8, 2.2, 3.2], best])
        np.testing.assert_allclose(curve.mean, [2.2, 2.1, 6.2 / 3, 2.0])
        np.testing.assert_allclose(curve.excess_standard_error, [0.1, 0.05, 0.4 / 3, 0.0], atol=1e-12)
        np.testing.assert_allclose(curve.standard_error[-1], 1 / np.sqrt(3))
        assert (curve.best, curve.chosen) == (3, 2)

    def test_noise_that_all_candidates_share_does_not_hide_a_difference(self) -> None:
        shared = np.array([1.0, 5.0, 9.0])
        curve = _curve([(shared + 0.1).tolist(), shared.tolist()])
        assert curve.standard_error.min() > 2
        assert curve.chosen == 1

    def test_of_equal_candidates_the_first_is_taken(self) -> None:
        assert _curve([[1.0, 2.0], [1.0, 2.0]]).chosen == 0


class TestFolds:
    @given(st.integers(2, 40), st.integers(2, 5), st.integers(0, 9), st.booleans())
    def test_every_row_is_held_out_once_and_the_classes_are_dealt_evenly(
        self, n: int, n_folds: int, seed: int, weighted: bool
    ) -> None:
        rng = np.random.default_rng(seed)
        score, label = rng.integers(0, 9, n) / 9, rng.random(n) < 0.4
        counts = counts_of_rows(score, label, rng.uniform(1, 2, n) if weighted else None)
        folds = list(folds_of_rows(counts, n_folds, np.random.default_rng(seed)))
        assert len(folds) == n_folds
        held_positives = [held.positive_rows for _, held in folds]
        assert sum(held_positives) == counts.positive_rows
        assert max(held_positives) - min(held_positives) <= 1
        assert max(h.rows for _, h in folds) - min(h.rows for _, h in folds) <= 1
        for fitted, held in folds:
            assert fitted.rows + held.rows == n
            assert fitted.labelled.sum() + held.labelled.sum() == pytest.approx(counts.labelled.sum())
            assert fitted.positives.sum() + held.positives.sum() == pytest.approx(counts.positives.sum())
            assert (np.diff(fitted.score) >= 0).all()

    def test_folds_of_rows_do_not_depend_on_their_order(self) -> None:
        score, label, _ = _rows(500)
        order = np.random.default_rng(3).permutation(500)
        a, b = GIRBCV().fit(score, label), GIRBCV().fit(score[order], label[order])
        assert a.curve_.loss.tobytes() == b.curve_.loss.tobytes()

    @given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), min_size=2, max_size=20), st.integers(0, 9))
    def test_thinning_keeps_every_row(self, cells: list[tuple[int, int]], seed: int) -> None:
        n = np.array([200.0 + n for n, _ in cells])
        k = np.minimum(n, [k for _, k in cells])
        whole = counts_by_score(np.linspace(0, 1, len(n)), n, k)
        folds = list(thinned(whole, 4, np.random.default_rng(seed)))
        assert sum(held.labelled.sum() for _, held in folds) == n.sum()
        assert sum(held.positives.sum() for _, held in folds) == k.sum()
        for fitted, held in folds:
            assert fitted.labelled.sum() + held.labelled.sum() == n.sum()
            assert (held.positives <= held.labelled).all()
            # A quarter of the rows, within five standard deviations of the binomial law.
            assert abs(held.rows - n.sum() / 4) < 5 * np.sqrt(n.sum() * 3 / 16)

    def test_decayed_counts_cannot_be_thinned(self) -> None:
        n = np.full(N_BINS, 10.5)
        with pytest.raises(FitError, match=r"decayed ones as \(folds, 402\)"):
            GIRBCV().fit_cells(n, n / 2)

    def test_a_fold_without_rows_is_refused(self) -> None:
        n = np.array([[5.0, 5.0], [0.0, 0.0]])
        with pytest.raises(TooFewRowsError, match="fold 1 has no labelled rows"):
            list(folds_of_counts(np.array([0.2, 0.8]), n, n / 2))


def _rows(n: int, waves: float = 0.18, seed: int = 1) -> tuple[NDArray[np.float64], NDArray[np.bool_], Any]:
    """Scores whose truth rises in waves: many groups are needed to follow it."""
    rng = np.random.default_rng(seed)
    x = rng.normal(-1, 1.5, n)
    truth = expit(0.6 * x + waves * np.sin(3 * x))
    return expit(x), rng.random(n) < truth, truth


def _cells(score: NDArray[np.float64], label: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[Any]]:
    grid_bin = locate(score)[0]
    return np.bincount(grid_bin, minlength=N_BINS), np.bincount(grid_bin, label, N_BINS)


class TestChoice:
    def test_more_groups_for_more_rows_and_the_platt_prior_where_it_is_right(self) -> None:
        straight, winding = GIRBCV().fit(*_rows(3000, waves=0.0)[:2]), GIRBCV().fit(*_rows(200_000)[:2])
        assert straight.curve_.effective_groups[straight.curve_.chosen] < 20
        assert straight.prior_strength_ == 100.0
        assert winding.curve_.effective_groups[winding.curve_.chosen] > 40

    @pytest.mark.parametrize("criterion", ["log_loss", "debiased_ece"])
    def test_the_curve_has_every_candidate_and_falls_where_groups_are_too_few(self, criterion: Any) -> None:
        score, label, truth = _rows(100_000)
        fitted = GIRBCV(n_groups=(200, 1, 20), prior_strength=(10, 30), criterion=criterion).fit(score, label)
        curve = fitted.curve_
        assert curve.n_groups.tolist() == [1, 1, 20, 20, 200, 200]
        assert curve.prior_strength.tolist() == [30, 10] * 3
        n = 100_000 / curve.n_groups
        np.testing.assert_allclose(curve.effective_groups, curve.n_groups * n / (n + curve.prior_strength))
        assert curve.loss.shape == (6, 5)
        assert curve.mean[0] > curve.mean[2] + 10 * curve.excess_standard_error[2]
        assert fitted.n_groups_ >= 20
        assert np.abs(fitted.predict(score) - truth).mean() < 0.01

    def test_the_loss_is_that_of_the_rows_held_out(self) -> None:
        score, label, _ = _rows(1000)
        counts = counts_of_rows(score, label, None)
        fitted = GIRBCV(n_groups=(7,), prior_strength=(5.0,)).fit(score, label)
        folds = list(folds_of_rows(counts, 5, np.random.default_rng(0)))
        for (rest, held), loss in zip(folds, fitted.curve_.loss[0], strict=True):
            p = GIRB(n_groups=7, prior_strength=5.0).fit(rest.score, rest.positives).predict(held.score)
            assert loss == pytest.approx(metrics.log_loss(held.positives, p), rel=1e-12)

    def test_what_is_chosen_is_fitted_to_everything(self) -> None:
        score, label, _ = _rows(2000)
        fitted = GIRBCV(girb=GIRB(strategy="uniform", p_min=1e-3)).fit(score, label)
        alone = GIRB(
            n_groups=fitted.n_groups_, prior_strength=fitted.prior_strength_, strategy="uniform", p_min=1e-3
        ).fit(score, label)
        assert fitted.predict(score).tobytes() == alone.predict(score).tobytes()
        assert fitted.base_map().to_lists() == alone.base_map().to_lists()

    def test_from_rows_cells_and_unit_buckets_the_choice_is_about_as_good(self) -> None:
        score, label, truth = _rows(40_000)
        n, k = _cells(score, label)
        bucket = np.random.default_rng(4).integers(0, 5, len(score))
        parts = [_cells(score[bucket == b], label[bucket == b]) for b in range(5)]
        by_bucket = [np.array(of) for of in zip(*parts, strict=True)]
        decayed = [of * 0.37 for of in by_bucket]
        made = [GIRBCV().fit(score, label), GIRBCV().fit_cells(n, k), GIRBCV().fit_cells(*by_bucket)]
        made.append(GIRBCV(prior_strength=(0.0, 4.0, 11.0, 37.0)).fit_cells(*decayed))
        for fitted in made:
            assert fitted.curve_.loss.shape == (20, 5)
            assert np.abs(fitted.predict(score) - truth).mean() < 0.02

    def test_weights_count(self) -> None:
        score, label, _ = _rows(20_000)
        thin = label | (np.random.default_rng(5).random(len(label)) < 0.2)
        weight = np.where(label, 1.0, 5.0)
        fitted = GIRBCV().fit(score[thin], label[thin], weight[thin])
        assert fitted.predict(score).mean() == pytest.approx(label.mean(), abs=0.01)


class TestRefusals:
    @pytest.mark.parametrize(
        ("parameters", "word"),
        [
            ({"criterion": "brier"}, "criterion"),
            ({"n_folds": 1}, "n_folds"),
            ({"n_groups": ()}, "at least one candidate"),
            ({"prior_strength": ()}, "at least one candidate"),
            ({"n_groups": (10, 0)}, "n_groups = 0"),
            ({"prior_strength": (10.0, -1.0)}, "prior_strength = -1"),
            ({"girb": GIRB(shape="round")}, "shape"),  # type: ignore[arg-type]  # that is the point
        ],
    )
    def test_parameters_without_sense(self, parameters: dict[str, Any], word: str) -> None:
        with pytest.raises(ConfigurationError, match=word):
            GIRBCV(**parameters).fit(*_rows(100)[:2])

    def test_too_few_of_a_class_to_hold_one_out(self) -> None:
        with pytest.raises(TooFewPositivesError, match="1 positives; at least 2"):
            GIRBCV().fit(np.linspace(0, 1, 20), np.arange(20) == 19)
        with pytest.raises(OneClassError):
            GIRBCV().fit(np.linspace(0, 1, 20), np.zeros(20))
        with pytest.raises(TooFewRowsError, match="4 labelled rows; 5 are needed"):
            GIRBCV().fit(np.linspace(0, 1, 4), [0, 1, 0, 1])

    def test_cells_of_other_shapes_or_below_0(self) -> None:
        n = np.ones((5, N_BINS))
        with pytest.raises(LengthMismatchError, match="at least 2 folds"):
            GIRBCV().fit_cells(n, n[:4])
        with pytest.raises(LengthMismatchError, match="at least 2 folds"):
            GIRBCV().fit_cells(n[:1], n[:1])
        with pytest.raises(LengthMismatchError):
            GIRBCV().fit_cells(n[:, :400], n[:, :400])
        n[1, 1] = -1
        with pytest.raises(WeightError):
            GIRBCV().fit_cells(n, n)


def test_counts_that_are_no_exact_numbers_any_more_are_not_split() -> None:
    labelled = np.full(N_BINS, 2e19)
    with pytest.raises(FitError, match="a count of 2e\\+19 is no exact number any more; give counts by unit bucket"):
        GIRBCV().fit_cells(labelled, labelled / 2)
