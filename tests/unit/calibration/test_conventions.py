"""What holds for every calibrator of one score: scikit-learn's conventions, and what is refused."""

import pickle
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from stream_calib.calibration import GIRB, GIRBCV
from stream_calib.calibration.baselines import BetaCalibration, CenteredIsotonic, Identity, Isotonic, Platt
from stream_calib.calibration.baselines.baseline import Baseline
from stream_calib.calibration.calibrator import Calibrator
from stream_calib.calibration.grid import N_BINS
from stream_calib.errors import (
    ConfigurationError,
    FitError,
    LengthMismatchError,
    NonFiniteInputError,
    OneClassError,
    ScoreRangeError,
    TooFewPositivesError,
    TooFewRowsError,
    WeightError,
)
from tests.unit.calibration.estimator_checks import OnTheChecksData, check

Kind = type[Baseline] | type[GIRB]

SCORES = [0.2, 0.4, 0.4, 0.4, 0.6, 0.8]
LABELS = [0, 1, 1, 0, 0, 1]

every_calibrator = pytest.mark.parametrize(
    "calibrator", [Identity, Platt, BetaCalibration, Isotonic, CenteredIsotonic, GIRB]
)


class CheckedIdentity(OnTheChecksData, Identity):
    pass


class CheckedPlatt(OnTheChecksData, Platt):
    pass


class CheckedBetaCalibration(OnTheChecksData, BetaCalibration):
    pass


class CheckedIsotonic(OnTheChecksData, Isotonic):
    pass


class CheckedCenteredIsotonic(OnTheChecksData, CenteredIsotonic):
    pass


class CheckedGIRB(OnTheChecksData, GIRB):
    pass


class CheckedGIRBCV(OnTheChecksData, GIRBCV):
    pass


@pytest.mark.parametrize(
    "checked",
    [
        CheckedIdentity(),
        CheckedPlatt(),
        CheckedBetaCalibration(),
        CheckedIsotonic(),
        CheckedCenteredIsotonic(),
        CheckedGIRB(),
        CheckedGIRBCV(n_groups=(5, 20), prior_strength=(30.0,)),
    ],
    ids=lambda checked: type(checked).__name__,
)
def test_scikit_learns_checks(checked: Calibrator) -> None:
    check(checked)


@every_calibrator
class TestConventions:
    def test_is_cloned_pickled_and_read_as_a_column(self, calibrator: Kind) -> None:
        made = calibrator(min_rows=3, min_positives=2, p_min=0.01, strict=True)
        given = {"min_rows": 3, "min_positives": 2, "p_min": 0.01, "strict": True}
        assert clone(made).get_params() == {**calibrator().get_params(), **given}
        made.fit(np.array(SCORES)[:, None], LABELS)
        x = np.linspace(0, 1, 21)
        stored = pickle.loads(pickle.dumps(made))
        assert stored.predict(x).tolist() == made.predict(x[:, None]).tolist()
        assert made.transform(x).tolist() == made.predict(x)[:, None].tolist()

    def test_is_a_step_of_a_pipeline(self, calibrator: Kind) -> None:
        pipeline = make_pipeline(FunctionTransformer(expit), calibrator())
        predicted = pipeline.fit(logit(np.array(SCORES))[:, None], LABELS).predict(logit(np.array(SCORES))[:, None])
        np.testing.assert_allclose(predicted, calibrator().fit(SCORES, LABELS).predict(SCORES), rtol=1e-9)

    def test_before_a_fit_it_says_so(self, calibrator: Kind) -> None:
        with pytest.raises(NotFittedError):
            calibrator().predict([0.5])
        with pytest.raises(NotFittedError):
            calibrator().base_map()

    def test_the_input_is_left_as_it_was(self, calibrator: Kind) -> None:
        score, label = np.array([0.9, 0.1, -0.0, 0.5]), np.array([1, 0, 0, 1])
        before = score.tobytes(), label.tobytes()
        calibrator().fit(score, label).predict(score)
        assert (score.tobytes(), label.tobytes()) == before


@every_calibrator
class TestRefusals:
    @pytest.mark.parametrize(
        ("score", "label", "weight", "error", "message"),
        [
            ([0.1, 0.9], [0, 0], None, OneClassError, "all 2 labels are 0"),
            ([0.1, 0.9, 0.5], [1, 0, 1], [1, 0, 1], OneClassError, "all 2 labels are 1"),
            ([], [], None, TooFewRowsError, "0 labelled rows; 2 are needed"),
            ([0.1], [1], None, TooFewRowsError, "1 labelled rows; 2 are needed"),
            ([0.1, np.nan], [0, 1], None, NonFiniteInputError, "1 scores are NaN or infinite"),
            ([0.1, 0.2], [0, 1], [1, np.inf], NonFiniteInputError, "1 weights are NaN or infinite"),
            ([0.1, 1.2], [0, 1], None, ScoreRangeError, "1 scores lie outside"),
            ([0.1, 0.2], [0, 1, 1], None, LengthMismatchError, r"labels \(3,\)"),
            ([0.1, 0.2], [0, 1], [1, -1], WeightError, "1 weights are negative"),
            ([0.1, 0.2], [0, 1], [0, 0], WeightError, "all weights are 0"),
            ([0.1, np.inf], [0, 1], None, NonFiniteInputError, "1 scores are NaN or infinite"),
            ([0.1, 0.2], [0, np.nan], None, NonFiniteInputError, "1 labels are NaN or infinite"),
            ([-0.1, 0.2], [0, 1], None, ScoreRangeError, "the first is -0.1"),
            ([0.1, 0.2], [0, 1], [1], LengthMismatchError, r"weights \(1,\)"),
            ([0.1, 0.2], [0, 2], None, FitError, "labels must be 0 or 1"),
            ([0.1, 0.2], ["0", "1"], None, FitError, "labels have dtype"),
            (["0.1", "0.2"], [0, 1], None, FitError, "scores have dtype"),
            ([0.1, 0.2], [0, None], None, FitError, "labels have dtype object"),
            ([[0.1, 0.2]], [0], None, FitError, "give one score a row"),
        ],
    )
    def test_data_without_a_fit_have_their_own_error(
        self,
        calibrator: Kind,
        score: list[Any],
        label: list[Any],
        weight: list[float] | None,
        error: type[FitError],
        message: str,
    ) -> None:
        with pytest.raises(FitError, match=message) as raised:
            calibrator().fit(score, label, weight)
        assert type(raised.value) is error

    def test_minimum_rows_and_positives(self, calibrator: Kind) -> None:
        score, label = np.linspace(0, 1, 100), np.arange(100) >= 90
        calibrator(min_rows=100, min_positives=10).fit(score, label)
        with pytest.raises(TooFewRowsError, match="100 labelled rows; 101 are needed"):
            calibrator(min_rows=101).fit(score, label)
        with pytest.raises(TooFewPositivesError, match="10 positives; at least 11"):
            calibrator(min_positives=11).fit(score, label)
        with pytest.raises(TooFewPositivesError, match="10 negatives; at least 11"):
            calibrator(min_positives=11).fit(score, ~label)

    @pytest.mark.parametrize("p_min", [0.5, -0.1, np.nan])
    def test_limits_without_sense(self, calibrator: Kind, p_min: float) -> None:
        with pytest.raises(ConfigurationError, match="it must lie in"):
            calibrator(p_min=p_min).fit(SCORES, LABELS)

    @pytest.mark.parametrize(("score", "error"), [([1.5], ScoreRangeError), ([np.nan], NonFiniteInputError)])
    def test_predicting_what_is_no_score(self, calibrator: Kind, score: list[float], error: type[FitError]) -> None:
        with pytest.raises(error):
            calibrator().fit(SCORES, LABELS).predict(score)

    def test_cells(self, calibrator: Kind) -> None:
        n, k = np.zeros(N_BINS), np.zeros(N_BINS)
        with pytest.raises(TooFewRowsError):
            calibrator().fit_cells(n, k)
        n[5], k[5] = 10, 11
        with pytest.raises(FitError, match="above its labelled rows"):
            calibrator().fit_cells(n, k)
        k[5] = 10
        with pytest.raises(OneClassError):
            calibrator().fit_cells(n, k)
        with pytest.raises(LengthMismatchError):
            calibrator().fit_cells(n[:400], k[:400])
        n[7] = -1
        with pytest.raises(WeightError, match="1 weights are negative"):
            calibrator().fit_cells(n, k)
