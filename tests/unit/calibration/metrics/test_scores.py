from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, roc_auc_score
from sklearn.metrics import log_loss as sklearn_log_loss

from stream_calib.calibration import metrics
from stream_calib.errors import FitError

rows = st.lists(
    st.tuples(st.booleans(), st.sampled_from([0.01, 0.2, 0.25, 0.5, 0.77, 0.99]), st.integers(0, 4)),
    min_size=2,
    max_size=50,
).filter(lambda r: {y for y, _, w in r if w} == {True, False})


def test_log_loss_clips_at_one_in_a_million() -> None:
    assert metrics.log_loss([1, 0], [0.0, 0.0]) == pytest.approx(-np.log(1e-6) / 2, rel=1e-6)
    assert metrics.log_loss([0], [1.0]) == pytest.approx(-np.log(1e-6), rel=1e-6)
    assert metrics.log_loss_of_counts([0.25], [4], [1]) == pytest.approx(-(0.25 * np.log(0.25) + 0.75 * np.log(0.75)))


@given(rows)
@settings(max_examples=60)
def test_rows_with_weights_agree_with_scikit_learn_and_with_counts(given_rows: list[tuple[bool, float, int]]) -> None:
    y, p, w = (np.array(column) for column in zip(*given_rows, strict=True))
    y = y.astype(int)
    assert metrics.log_loss(y, p, w) == pytest.approx(sklearn_log_loss(y, p, sample_weight=w), abs=1e-12)
    assert metrics.brier(y, p, w) == pytest.approx(brier_score_loss(y, p, sample_weight=w), abs=1e-12)
    assert metrics.auc(y, p, w) == pytest.approx(roc_auc_score(y, p, sample_weight=w), abs=1e-12)
    value = np.unique(p)
    n = np.array([w[p == v].sum() for v in value])
    k = np.array([(w * y)[p == v].sum() for v in value])
    assert metrics.log_loss_of_counts(value, n, k) == pytest.approx(metrics.log_loss(y, p, w), abs=1e-12)
    assert metrics.brier_of_counts(value, n, k) == pytest.approx(metrics.brier(y, p, w), abs=1e-12)
    assert metrics.auc_of_counts(value, n, k) == pytest.approx(metrics.auc(y, p, w), abs=1e-12)
    assert metrics.ece_of_counts(value, n, k) == pytest.approx(metrics.ece(y, p, w), abs=1e-12)
    sums = metrics.log_loss_sums(value, n, k)
    assert sums.sum() / n.sum() == pytest.approx(metrics.log_loss(y, p, w), abs=1e-12)


def test_auc_by_hand() -> None:
    assert metrics.auc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]) == 0.75
    assert metrics.auc([0, 1], [0.5, 0.5]) == 0.5


@given(rows)
@settings(max_examples=40)
def test_brier_is_the_sum_of_its_parts(given_rows: list[tuple[bool, float, int]]) -> None:
    y, p, w = (np.array(column) for column in zip(*given_rows, strict=True))
    parts = metrics.brier_decomposition(y, p, w, n_bins=10_000)
    whole = parts.reliability - parts.resolution + parts.uncertainty + parts.within_bin
    assert whole == pytest.approx(metrics.brier(y, p, w), abs=1e-12)
    assert parts.within_bin == pytest.approx(0.0, abs=1e-12)
    assert parts.uncertainty == pytest.approx(np.average(y, weights=w) * (1 - np.average(y, weights=w)))


def test_brier_decomposition_by_hand() -> None:
    parts = metrics.brier_decomposition([0, 0, 0, 1, 0, 1, 1, 1], [0.1] * 4 + [0.9] * 4)
    assert parts.reliability == pytest.approx(0.15**2)
    assert parts.resolution == pytest.approx(0.25**2)
    assert parts.uncertainty == 0.25


def test_label_and_probability_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(FitError, match="labels must be 0 or 1"):
        metrics.log_loss([0.2, 0.7], [0, 1])


@pytest.mark.parametrize(
    ("labels", "probabilities", "weights", "message"),
    [
        (np.array([0, 1], dtype=object), [0.2, 0.7], None, "labels have dtype object; numbers are needed"),
        (["no", "yes"], [0.2, 0.7], None, "labels have dtype <U3; numbers are needed"),
        ([0, 1], ["0.2", "0.7"], None, "probabilities have dtype <U3; numbers are needed"),
        ([0, 1], [None, 0.7], None, "probabilities have dtype object; numbers are needed"),
        ([0, 1], [0.2, 0.7], ["a", "b"], "weights have dtype <U1; numbers are needed"),
    ],
)
def test_text_and_objects_are_never_guessed_at(labels: Any, probabilities: Any, weights: Any, message: str) -> None:
    with pytest.raises(FitError, match=message):
        metrics.log_loss(labels, probabilities, weights)


def test_counts_of_text_are_refused() -> None:
    with pytest.raises(FitError, match="labelled have dtype <U1; numbers are needed"):
        metrics.log_loss_of_counts([0.2], ["3"], [1])
