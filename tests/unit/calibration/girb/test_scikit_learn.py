"""GIRB inside scikit-learn's pipelines, searches and cross-validation."""

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.special import expit
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from stream_calib.calibration import GIRB, GIRBCV, metrics
from stream_calib.calibration.calibrator import Calibrator
from stream_calib.errors import FitError


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
