"""scikit-learn's own estimator checks, and use inside its pipelines and cross-validation."""

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix, issparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from stream_calib.calibration import GIRB, metrics
from stream_calib.calibration.calibrator import Calibrator
from stream_calib.calibration.girb_selection import GIRBCV
from stream_calib.errors import FitError


class _OnTheChecksData:
    """The checks draw several features from the whole line, and outcomes of all kinds. This takes the first feature,
    squashed into (0, 1), and whether the outcome is above its median; all else is the calibrator's own."""

    def fit(self, X: ArrayLike, y: ArrayLike | None, sample_weight: ArrayLike | None = None) -> Any:
        outcome = y if y is None else np.asarray(y)
        if outcome is not None and outcome.dtype.kind in "iuf" and outcome.ndim == 1 and np.isfinite(outcome).all():
            outcome = outcome > (outcome.min() + outcome.max()) / 2
        return super().fit(_first_feature(X), outcome, sample_weight)  # type: ignore[misc]  # the calibrator's

    def predict(self, X: ArrayLike) -> Any:
        return super().predict(_first_feature(X))  # type: ignore[misc]  # the calibrator's

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]  # the calibrator's
        # With this tag the checks would slice their data to (n,), and then fail over it themselves.
        tags.input_tags.one_d_array = False
        return tags


def _first_feature(X: Any) -> Any:
    if issparse(X):
        return X
    values = np.asarray(X)
    if values.dtype.kind not in "iuf" or not values.ndim or 0 in values.shape[1:]:
        return X
    first = (values[:, 0] if values.ndim == 2 else values).astype(np.float64)
    return np.where(np.isfinite(first), expit(first), first)


class CheckedGIRB(_OnTheChecksData, GIRB):
    pass


class CheckedGIRBCV(_OnTheChecksData, GIRBCV):
    pass


_ONE_FEATURE = "a calibrator has one feature, a score, by definition; it may come as (n,)"
DOES_NOT_APPLY = {
    "check_n_features_in": _ONE_FEATURE,
    "check_n_features_in_after_fitting": _ONE_FEATURE,
    "check_transformer_general": f"its last part does not: {_ONE_FEATURE}",
    "check_fit2d_predict1d": _ONE_FEATURE,
    "check_fit1d": _ONE_FEATURE,
    "check_estimators_empty_data_messages": "no feature is the wrong shape, and the error says so in its own words",
    "check_fit2d_1sample": "one row is too few, and the error says so in its own words",
    "check_dtype_object": "text and None in arrays of objects are refused, not guessed at",
    "check_supervised_y_2d": "labels are (n,): a column of labels is refused, not guessed at",
    "check_regressors_train": "asks for R^2 > .5 of a real-valued outcome; here the outcome is 0 or 1",
}


@pytest.mark.parametrize(
    "estimator", [CheckedGIRB(), CheckedGIRBCV(n_groups=(5, 20), prior_strength=(30.0,))], ids=["GIRB", "GIRBCV"]
)
def test_scikit_learns_checks(estimator: Calibrator) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, on_fail=None, on_skip=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert {name: error for name, error in failed.items() if name not in DOES_NOT_APPLY} == {}
    assert sum(r["status"] == "passed" for r in results) >= 45
    # What is said not to apply does fail.
    assert {name for name in DOES_NOT_APPLY if name not in failed} == set()


@pytest.mark.parametrize("made", [GIRB(strategy=(0.5, 0.8), end_slopes=(0.5, 1.0)), GIRBCV(girb=GIRB(shape="step"))])
def test_clones_pickles_and_shows_its_parameters(made: Calibrator) -> None:
    score, label, _ = _scores()
    fitted = clone(made).fit(score, label)
    assert repr(clone(fitted).get_params()) == repr(made.get_params())
    again = pickle.loads(pickle.dumps(fitted))
    assert again.predict(score).tobytes() == fitted.predict(score).tobytes()
    assert again.base_map().to_lists() == fitted.base_map().to_lists()


def test_calibrates_held_out_probabilities_of_a_classifier() -> None:
    features, label = make_classification(6000, n_informative=8, flip_y=0.1, random_state=4)
    train, test = slice(0, 3000), slice(3000, None)
    model = GaussianNB().fit(features[train], label[train])
    out_of_fold = cross_val_predict(GaussianNB(), features[train], label[train], method="predict_proba", cv=5)[:, 1]
    raw = model.predict_proba(features[test])[:, 1]
    for girb in (GIRB(n_groups=30), GIRBCV()):
        p = girb.fit(out_of_fold, label[train]).predict(raw)
        # Naive Bayes counts correlated features several times, so it is far too sure of itself.
        assert metrics.log_loss(label[test], p) < metrics.log_loss(label[test], raw) - 0.05
        assert metrics.ece(label[test], p) < 0.5 * metrics.ece(label[test], raw)


def test_stands_where_calibrated_classifier_cv_puts_its_calibrators() -> None:
    """CalibratedClassifierCV keeps to its own two methods; its flow, with GIRB in place of its isotonic regression,
    differs from it in nothing else."""
    features, label = make_classification(4000, n_informative=8, flip_y=0.1, random_state=5)
    train, test = slice(0, 2500), slice(2500, None)
    theirs = CalibratedClassifierCV(GaussianNB(), method="isotonic", cv=5, ensemble=True).fit(
        features[train], label[train]
    )
    p = np.zeros(1500)
    for folded in theirs.calibrated_classifiers_:
        rows = _rows_held_out_of(folded, features[train], label[train])
        girb = GIRB(n_groups=40).fit(folded.estimator.predict_proba(features[train][rows])[:, 1], label[train][rows])
        p += girb.predict(folded.estimator.predict_proba(features[test])[:, 1]) / 5
    assert metrics.log_loss(label[test], p) < metrics.log_loss(label[test], theirs.predict_proba(features[test])[:, 1])


def _rows_held_out_of(folded: Any, features: NDArray[np.float64], label: NDArray[np.int64]) -> NDArray[np.intp]:
    for rest, held in StratifiedKFold(5).split(features, label):
        if np.array_equal(GaussianNB().fit(features[rest], label[rest]).theta_, folded.estimator.theta_):
            return np.asarray(held)
    raise AssertionError("the classifier was fitted to no fold")


def test_is_the_last_step_after_predicted_probabilities() -> None:
    score, label, _ = _scores()
    logits = np.log(score / (1 - score))
    pipeline = make_pipeline(FunctionTransformer(expit), GIRB(n_groups=20)).fit(logits[:, None], label)
    np.testing.assert_array_equal(
        pipeline.predict(logits[:, None]), GIRB(n_groups=20).fit(expit(logits), label).predict(expit(logits))
    )
    assert pipeline.transform(logits[:, None]).shape == (len(score), 1)
    assert pipeline.set_params(girb__n_groups=5).named_steps["girb"].n_groups == 5


def test_a_grid_search_finds_its_parameters() -> None:
    score, label, _ = _scores()
    search = GridSearchCV(GIRB(), {"n_groups": [1, 20]}, scoring="neg_mean_squared_error")
    assert search.fit(score[:, None], label).best_params_ == {"n_groups": 20}


def test_sparse_and_complex_scores_and_missing_labels_are_refused_in_words() -> None:
    sparse: Any = csr_matrix([[0.1], [0.2]])
    no_labels: Any = None
    with pytest.raises(FitError, match="sparse input is not taken"):
        GIRB().fit(sparse, [0, 1])
    with pytest.raises(FitError, match="Complex data not supported"):
        GIRB().fit(np.array([0.1 + 1j, 0.2]), [0, 1])
    with pytest.raises(FitError, match="requires y to be passed"):
        GIRB().fit([0.1, 0.2], no_labels)


def _scores() -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]]:
    rng = np.random.default_rng(6)
    score = rng.uniform(0.01, 0.99, 2000)
    truth = score**2
    return score, rng.random(2000) < truth, truth
