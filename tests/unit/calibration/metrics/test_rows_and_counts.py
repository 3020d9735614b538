"""Every metric has two forms over one definition: rows with weights, and the counts behind each probability."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.calibration import metrics
from stream_calib.errors import (
    ConfigurationError,
    FitError,
    LengthMismatchError,
    NonFiniteInputError,
    OneClassError,
    ScoreRangeError,
    WeightError,
)

OF_ALL = (
    "auc",
    "brier",
    "brier_decomposition",
    "corp_curve",
    "corp_decomposition",
    "debiased_squared_ece",
    "ece",
    "log_loss",
    "maximum_calibration_error",
    "reliability_curve",
    "smooth_ece",
)
OF_GROUPS = (
    "group_calibration_errors",
    "group_table",
    "multicalibration_error",
    "multicalibration_test",
    "worst_group_error",
)

cells = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.01, 0.2, 0.25, 0.5, 0.77, 1.0]),
        st.integers(-1, 2),
        st.integers(-1, 1),
        st.integers(0, 12),
        st.integers(0, 12),
    ),
    min_size=1,
    max_size=30,
).filter(lambda entries: any(e[3] for e in entries) and any(e[4] for e in entries))


def form(name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(metrics, name)
    return function


def numbers(result: Any) -> list[Any]:
    """The result's figures, whatever its form."""
    if not dataclasses.is_dataclass(result):
        return [result]
    return [x for f in dataclasses.fields(result) for x in numbers(getattr(result, f.name))]


def assert_same(one: Any, other: Any) -> None:
    for x, y in zip(numbers(one), numbers(other), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)


def test_every_public_metric_has_both_forms() -> None:
    pairs = {name for name in metrics.__all__ if f"{name}_of_counts" in metrics.__all__}
    assert pairs == {*OF_ALL, *OF_GROUPS, "ece_of_perfect"}
    without = {name for name in metrics.__all__ if name.islower() and not name.endswith("_of_counts")} - pairs
    assert without == {"log_loss_sums"}


@given(cells)
@settings(max_examples=60, deadline=None)
def test_rows_and_their_counts_give_the_same(entries: list[tuple[float, int, int, int, int]]) -> None:
    value, a, b, negatives, positives = (np.array(column) for column in zip(*entries, strict=True))
    labelled = negatives + positives
    row = np.repeat(np.arange(len(value)), labelled)
    y = np.concatenate([np.repeat([1, 0], [k, n - k]) for n, k in zip(labelled, positives, strict=True)])
    for name in OF_ALL:
        assert_same(form(name)(y, value[row]), form(f"{name}_of_counts")(value, labelled, positives))
    for name in OF_GROUPS:
        of_rows = form(name)(y, value[row], [a[row], b[row]])
        assert_same(of_rows, form(f"{name}_of_counts")(value, labelled, positives, [a, b]))
    assert_same(metrics.ece_of_perfect(value[row]), metrics.ece_of_perfect_of_counts(value, labelled))


@given(cells.filter(lambda entries: len(entries) > 1), st.floats(0.01, 100))
@settings(max_examples=30, deadline=None)
def test_a_common_weight_changes_nothing_and_rows_of_weight_0_neither(
    entries: list[tuple[float, int, int, int, int]], common: float
) -> None:
    p, a, b, negatives, positives = (np.array(column) for column in zip(*entries, strict=True))
    y = (positives > negatives).astype(int)
    y[0], y[-1] = 0, 1
    more = np.concatenate([p, p]), np.concatenate([1 - y, y]), np.repeat([0.0, common], len(p))
    group = [np.concatenate([a, a]), np.concatenate([b, b])]
    scaled = ("labelled", "positives")
    for name in (*OF_ALL, *OF_GROUPS):
        if name == "multicalibration_test":
            continue
        groups = (group,) if name in OF_GROUPS else ()
        plain = form(name)(y, p, *([a, b] for _ in groups))
        weighted = form(name)(more[1], more[0], *groups, more[2])
        if dataclasses.is_dataclass(plain):
            fields = {f.name for f in dataclasses.fields(plain)} - {*scaled, "band"}
            for field in fields:
                np.testing.assert_allclose(getattr(weighted, field), getattr(plain, field), rtol=1e-7, atol=1e-9)
        else:
            assert weighted == pytest.approx(plain, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize(
    ("label", "probability", "weight", "error", "message"),
    [
        ([0, 1], [0.5], None, LengthMismatchError, "1 rows, labels"),
        ([0, 1], [0.5, 0.5], [1], LengthMismatchError, r"weights \(1,\)"),
        ([0, 1], [0.5, 0.5], [1, 1, 1], LengthMismatchError, r"weights \(3,\)"),
        ([[0, 1]], [[0.5, 0.5]], None, LengthMismatchError, r"labels \(1, 2\)"),
        ([0, 1], [0.5, np.nan], None, NonFiniteInputError, "leave those rows out"),
        ([0, 1], [0.5, 0.5], [1, np.inf], NonFiniteInputError, "leave those rows out"),
        ([0, 1], [0.5, 0.5], [1, -1], WeightError, "0 or more"),
        ([0, 1], [0.5, 0.5], [0, 0], WeightError, "all weights are 0"),
        ([0, 2], [0.5, 0.5], None, FitError, "labels must be 0 or 1"),
        ([0, np.nan], [0.5, 0.5], None, NonFiniteInputError, "1 labels are NaN"),
        ([0, 1], [0.5, 1.5], None, ScoreRangeError, "not log-odds"),
        ([], [], None, FitError, "no labelled rows"),
    ],
)
def test_rows_without_a_figure_are_refused(
    label: list[Any], probability: list[Any], weight: list[float] | None, error: type[FitError], message: str
) -> None:
    for name in OF_ALL:
        with pytest.raises(error, match=message):
            form(name)(label, probability, weight)
    for name in OF_GROUPS:
        if name != "multicalibration_test":
            with pytest.raises(error, match=message):
                form(name)(label, probability, [], weight)


@pytest.mark.parametrize(
    ("value", "labelled", "positives", "error", "message"),
    [
        ([0.5], [1, 1], [1, 0], LengthMismatchError, "same shape"),
        ([0.5], [2], [3], WeightError, "no more than labelled"),
        ([0.5], [2], [-1], WeightError, "0 or more"),
        ([0.5], [0], [0], WeightError, "nothing to evaluate"),
        ([-0.5], [1], [0], ScoreRangeError, "not log-odds"),
        ([0.5], [np.nan], [0], NonFiniteInputError, "leave those rows out"),
    ],
)
def test_counts_without_a_figure_are_refused(
    value: list[float], labelled: list[float], positives: list[float], error: type[FitError], message: str
) -> None:
    for name in (*OF_ALL, *OF_GROUPS):
        with pytest.raises(error, match=message):
            form(f"{name}_of_counts")(value, labelled, positives, *([[]] if name in OF_GROUPS else []))


def test_groups_that_cannot_be_meant_are_refused() -> None:
    y, p = [0, 1], [0.5, 0.5]
    for name in OF_GROUPS:
        with pytest.raises(LengthMismatchError, match="groups of family 1 have shape"):
            form(name)(y, p, [[0, 1], [0]])
        with pytest.raises(FitError, match="groups of family 0 have dtype <U2; number them"):
            form(name)(y, p, [["UA", "AA"]])
        for groups in ({"carrier": [0, 1]}, np.array([0, 1])):
            with pytest.raises(FitError, match="a list with a column of numbers for each family"):
                form(name)(y, p, groups)


def test_one_class_has_no_ranking_and_no_scale() -> None:
    with pytest.raises(OneClassError):
        metrics.auc([1, 1], [0.2, 0.3])
    with pytest.raises(OneClassError):
        metrics.worst_group_error([1, 1], [0.2, 0.3], [])


@pytest.mark.parametrize("n_bins", [0, -3, 10_001, 2.5, "15"])
def test_numbers_of_bins_are_bounded(n_bins: Any) -> None:
    names = ("ece", "debiased_squared_ece", "maximum_calibration_error", "brier_decomposition", "reliability_curve")
    for name in names:
        with pytest.raises(ConfigurationError, match="whole number of 1"):
            form(name)([0, 1], [0.2, 0.3], n_bins=n_bins)
    with pytest.raises(ConfigurationError, match="whole number of 1"):
        metrics.group_calibration_errors([0, 1], [0.2, 0.3], [], n_bins=n_bins)


def test_parameters_that_make_no_sense_are_refused() -> None:
    y, p = [0, 1], [0.2, 0.3]
    for curve in (metrics.reliability_curve, metrics.corp_curve):
        with pytest.raises(ConfigurationError, match="confidence"):
            curve(y, p, confidence=1.0)
        with pytest.raises(ConfigurationError, match="overdispersion"):
            curve(y, p, overdispersion=0.5)
    with pytest.raises(ConfigurationError, match="confidence"):
        metrics.group_table(y, p, [], confidence=0.0)
    with pytest.raises(ConfigurationError, match="overdispersion"):
        metrics.multicalibration_test(y, p, [], overdispersion=float("inf"))
    for edges in ([0, 0.5], [0.1, 1], [0, 0.5, 0.5, 1], [0, float("nan"), 1], 3):
        with pytest.raises(ConfigurationError, match="increase from 0 to 1"):
            metrics.multicalibration_error(y, p, [], edges=edges)
    with pytest.raises(ConfigurationError, match="gamma"):
        metrics.multicalibration_error(y, p, [], gamma=2)
    with pytest.raises(ConfigurationError, match="'mass' or 'width'"):
        metrics.ece(y, p, bins="quantile")  # type: ignore[arg-type]  # what is refused
    with pytest.raises(ConfigurationError, match="'brier' or 'log_loss'"):
        metrics.corp_decomposition(y, p, score="auc")  # type: ignore[arg-type]  # what is refused
