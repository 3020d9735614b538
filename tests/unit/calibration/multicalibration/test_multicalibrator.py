"""The estimator: parts that no unit shares, what it serves, what it says, what it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.base import clone

from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.calibration.metrics.log_loss import log_loss
from stream_calib.calibration.multicalibrator import Multicalibrator
from stream_calib.calibration.unit_roles import (
    AUDIT_BUCKETS,
    CERTIFICATE_BUCKETS,
    FIT_BUCKETS,
    in_buckets,
    unit_parts,
)
from stream_calib.errors import (
    ConfigurationError,
    FitError,
    LengthMismatchError,
    NonFiniteInputError,
    OneClassError,
    ScoreRangeError,
    StreamCalibError,
    TooFewPositivesError,
    TooFewRowsError,
    WeightError,
)

Columns = dict[str, list[str]]


def rows_of(n: int, seed: int, bump: float = 0.0) -> tuple[NDArray[Any], NDArray[Any], Columns, NDArray[Any]]:
    """Scores, labels, attributes and truths: offsets of countries and devices, and where `bump` is not 0 a residual of
    one device at probabilities of .3 to .7, which offsets cannot express."""
    random = np.random.default_rng(seed)
    score = expit(random.normal(-0.5, 1.2, n))
    country, device = random.integers(0, 5, n), random.integers(0, 2, n)
    truth = expit(logit(score) + np.array([0.8, -0.6, 0.3, 0.0, -0.2])[country] + np.array([0.0, 0.3])[device])
    truth = np.where((device == 1) & (truth > 0.3) & (truth < 0.7), truth + bump, truth)
    label = (random.random(n) < truth).astype(int)
    attributes = {"country": [f"c{i}" for i in country], "device": [f"d{i}" for i in device]}
    return score, label, attributes, truth


@pytest.fixture(scope="module")
def fitted() -> Multicalibrator:
    score, label, attributes, _ = rows_of(60_000, 1)
    return Multicalibrator().fit(score, label, attributes)


def test_served_probabilities_are_near_the_truth_and_parts_and_map_agree(fitted: Multicalibrator) -> None:
    score, label, attributes, truth = rows_of(50_000, 2)
    served = fitted.predict(score, attributes)

    assert np.sqrt(((served - truth) ** 2).mean()) < 0.012 < np.sqrt(((score - truth) ** 2).mean())
    signatures = list(zip(attributes["country"], attributes["device"], strict=True))
    again = ServedMap(fitted.parts_).apply(score, np.arange(len(score)), signatures)
    np.testing.assert_array_equal(served, again)
    assert log_loss(label, served) < log_loss(label, score) - 0.02


def test_held_out_losses_are_those_of_the_certificates_buckets(fitted: Multicalibrator) -> None:
    score, label, attributes, _ = rows_of(60_000, 1)
    held = in_buckets(unit_parts(None, len(score), 0)[1], CERTIFICATE_BUCKETS)
    reported = fitted.held_out_

    assert reported is not None
    assert reported.rows == held.sum()
    assert reported.raw_log_loss == pytest.approx(log_loss(label[held], score[held]), rel=1e-12)
    assert reported.log_loss == pytest.approx(log_loss(label[held], fitted.predict(score, attributes)[held]), rel=1e-12)
    assert reported.raw_brier == pytest.approx(((label - score)[held] ** 2).mean(), rel=1e-12)
    assert reported.brier < reported.raw_brier


def test_the_certificates_rows_change_nothing_that_is_served() -> None:
    score, label, attributes, _ = rows_of(6_000, 3)
    held = in_buckets(unit_parts(None, len(score), 0)[1], CERTIFICATE_BUCKETS)
    other = np.where(held, 1 - label, label)
    one, two = (Multicalibrator().fit(score, labels, attributes) for labels in (label, other))
    np.testing.assert_array_equal(one.predict(score, attributes), two.predict(score, attributes))
    worst = [np.abs(made.certificate_.residual).max() for made in (one, two)]
    assert worst[0] < 0.3 < worst[1]
    assert one.held_out_ != two.held_out_


def test_a_residual_that_offsets_cannot_express_is_patched() -> None:
    score, label, attributes, truth = rows_of(400_000, 4, bump=0.25)
    made = Multicalibrator(gamma=0.1, alpha_abs=0.05, alpha_rel=0.0).fit(score, label, attributes)

    assert made.result_.confirmable
    assert made.parts_.rounds
    unpatched = ServedMap(replace(made.parts_, rounds=()))
    signatures = list(zip(attributes["country"], attributes["device"], strict=True))
    before = unpatched.apply(score, np.arange(len(score)), signatures)
    served = made.predict(score, attributes)
    assert ((served - truth) ** 2).mean() < 0.9 * ((before - truth) ** 2).mean()
    text = made.summary()
    assert "patches             confirmed" in text
    assert "1. accepted: " in text


def test_the_summary_shows_choice_patches_certificate_and_losses(fitted: Multicalibrator) -> None:
    lines = fitted.summary().splitlines()
    assert lines[0] == f"base map, offsets   {fitted.chosen_.configuration.name}"
    assert lines[1] == "patches             none: no residual beyond its alpha and beyond noise"
    assert lines[3].startswith(f"certificate         {fitted.certificate_.status}, on ")
    assert f"{fitted.certificate_.alpha_claimed:.4f}" in lines[4]
    assert lines[5].split() == ["cells", "rows", "residual", "+-", "alpha"]
    assert lines[6].startswith(fitted.certificate_.cell_name(0))
    assert lines[-1].split()[:2] == ["Brier", "score"]
    assert max(map(len, lines)) <= 110


def test_intersections_and_predicates_are_families() -> None:
    score, label, attributes, _ = rows_of(4_000, 5)
    made = Multicalibrator(intersections=[["country", "device"]], predicates={"abroad": {"country": ["c1", "c2"]}}).fit(
        score, label, attributes
    )
    names = {family.rule.name for family in made.certificate_.families}
    assert names == {"all", "country", "device", "country & device", "abroad"}
    deep = Multicalibrator(depth=2).fit(score, label, attributes)
    assert {family.rule.name for family in deep.certificate_.families} == names - {"abroad"}


def test_an_explanation_ends_at_what_is_served(fitted: Multicalibrator) -> None:
    explained = fitted.explain(0.4, {"device": "d1", "country": "c0"})
    served = fitted.predict([0.4], {"country": ["c0"], "device": ["d1"]})
    assert explained.signature == ("c0", "d1")
    assert explained.probability == served[0]
    assert "country=c0" in str(explained)
    with pytest.raises(ConfigurationError, match="the map was fitted with"):
        fitted.explain(0.4, {"country": "c0"})


def test_unseen_values_are_served_by_the_other_groups(fitted: Multicalibrator) -> None:
    score = np.array([0.2, 0.5])
    new = fitted.predict(score, {"device": ["d1", "d1"], "country": ["new", "new"]})
    expected = {r.rule.name: dict(r.offsets) for r in fitted.parts_.families}
    known = fitted.predict(score, {"country": ["c0", "c0"], "device": ["d1", "d1"]})
    difference = logit(known) - logit(new)
    np.testing.assert_allclose(difference, expected["country"][("c0",)], atol=0.02)


def test_the_order_of_rows_with_ids_and_of_columns_changes_no_bit() -> None:
    score, label, attributes, _ = rows_of(4_000, 6)
    ids = np.array([f"u{i}" for i in range(len(score))])
    order = np.random.default_rng(1).permutation(len(score))
    shuffled = {name: [attributes[name][i] for i in order] for name in attributes}

    one = Multicalibrator().fit(score, label, attributes, unit_ids=ids)
    two = Multicalibrator().fit(score[order], label[order], shuffled, unit_ids=ids[order])

    np.testing.assert_array_equal(one.predict(score, attributes), two.predict(score, attributes))
    assert one.certificate_.alpha_claimed == two.certificate_.alpha_claimed


def test_rows_of_one_unit_widen_the_certificate() -> None:
    score, label, attributes, _ = rows_of(6_000, 7)
    alone = Multicalibrator(gamma=0.2).fit(score, label, attributes, unit_ids=np.arange(6_000))
    threes = Multicalibrator(gamma=0.2).fit(score, label, attributes, unit_ids=np.arange(6_000) // 3)
    assert threes.certificate_.detectable_alpha > alone.certificate_.detectable_alpha * 1.2


def test_weights_are_rows_that_occur_more_often() -> None:
    score, label, attributes, _ = rows_of(3_000, 8)
    ids = np.arange(3_000)
    twice = [np.repeat(column, 2) for column in (score, label, ids)]
    columns = {name: np.repeat(values, 2).tolist() for name, values in attributes.items()}
    weighted = Multicalibrator().fit(score, label, attributes, unit_ids=ids, sample_weight=np.full(3_000, 2.0))
    repeated = Multicalibrator().fit(twice[0], twice[1], columns, unit_ids=twice[2])
    np.testing.assert_array_equal(weighted.predict(score, attributes), repeated.predict(score, attributes))
    assert weighted.certificate_.alpha_claimed == repeated.certificate_.alpha_claimed


def test_without_weight_outside_the_fit_there_is_a_map_and_no_claim() -> None:
    score, label, attributes, _ = rows_of(3_000, 8)
    in_fit = in_buckets(unit_parts(None, 3_000, 0)[1], FIT_BUCKETS)
    made = Multicalibrator().fit(score, label, attributes, sample_weight=in_fit.astype(float))
    assert made.certificate_.status == "uncertified"
    assert made.certificate_.alpha_claimed == 1.0
    assert made.held_out_ is None
    lines = made.summary().splitlines()
    assert lines[-1] == "held out            no rows"
    assert "certificate         claims nothing: 0 rows do not suffice" in lines


def test_parameters_are_those_of_an_estimator() -> None:
    made = Multicalibrator(gamma=0.05, depth=2, seed=3)
    assert clone(made).get_params() == made.get_params()
    assert made.set_params(depth=1).depth == 1
    with pytest.raises(Exception, match="not fitted yet"):
        made.predict([0.5], {"country": ["c0"]})


Rows = dict[str, Any]
WRONG_WHOLE_NUMBERS: list[tuple[str, Any]] = [
    ("depth", 0),
    ("depth", 1.5),
    ("depth", "a"),
    ("depth", True),
    ("seed", -1),
    ("seed", 1.5),
    ("seed", "a"),
    ("seed", None),
    ("n_groups", 0),
    ("n_groups", 2.5),
    ("min_rows", "a"),
    ("min_rows", -1),
    ("min_positives", None),
]
WRONG_NUMBERS: list[tuple[str, Any]] = [
    (name, value)
    for name in ("gamma", "alpha_abs", "alpha_rel", "delta", "kappa", "ridge", "prior_strength", "p_min")
    for value in ("a", None, np.nan, True)
]


def _set(name: str, value: Any) -> Callable[[Rows], None]:
    return lambda rows: rows.__setitem__(name, value)


@pytest.mark.parametrize(
    ("parameters", "change", "error", "message"),
    [
        ({}, _set("labels", np.zeros(2_000)), OneClassError, "labels in the fit buckets are 0"),
        (
            {},
            _set("labels", in_buckets(unit_parts(None, 2_000, 0)[1], CERTIFICATE_BUCKETS)),
            OneClassError,
            "both classes are needed",
        ),
        (
            {"min_rows": 5_000},
            _set("labels", np.arange(2_000) % 2),
            TooFewRowsError,
            "in the 16 fit buckets of 20; 5000",
        ),
        ({}, _set("labels", (np.arange(2_000) < 5).astype(int)), TooFewPositivesError, "10 of each class are needed"),
        ({}, _set("labels", np.ones(5)), LengthMismatchError, r"labels \(5,\)"),
        ({}, _set("labels", np.full(2_000, 2)), FitError, "labels must be 0 or 1"),
        ({}, _set("labels", np.full(2_000, np.nan)), NonFiniteInputError, "labels are NaN or infinite"),
        ({}, _set("scores", np.full(2_000, 1.5)), ScoreRangeError, r"outside \[0, 1\]"),
        ({}, _set("attributes", {}), ConfigurationError, "no attributes"),
        ({}, _set("attributes", {"country": ["a"]}), LengthMismatchError, "attribute 'country' has 1 values for 2000"),
        ({}, _set("attributes", {"country": [None] * 2_000}), FitError, "has the value None; values are text"),
        ({}, _set("unit_ids", np.arange(3)), LengthMismatchError, r"unit ids \(3,\) for 2000 rows"),
        ({}, _set("unit_ids", np.full(2_000, 0.5)), FitError, "give text or whole numbers"),
        ({}, _set("sample_weight", np.full(2_000, -1.0)), WeightError, "2000 weights are negative"),
        ({}, _set("sample_weight", np.zeros(2_000)), WeightError, "all weights are 0"),
        ({}, _set("sample_weight", np.full(2_000, np.inf)), NonFiniteInputError, "weights are NaN or infinite"),
        ({}, _set("sample_weight", ["1"] * 2_000), FitError, "weights have dtype <U1; numbers are needed"),
        ({}, _set("sample_weight", np.full(2_000, 1e-12)), TooFewRowsError, "weigh 1.6e-09 together; weights count as"),
        ({}, _set("unit_ids", ["\ud800"] * 2_000), FitError, "half of a surrogate pair"),
        ({}, _set("unit_ids", [[1], [2, 3]] * 1_000), FitError, "unit ids are lists of several lengths"),
        ({}, _set("unit_ids", np.arange(2_000) % 4), TooFewRowsError, "of 5 folds; give 50 units or more"),
        ({}, _set("attributes", None), FitError, "attributes are a NoneType; give columns by name"),
        ({}, _set("attributes", [["a"] * 2_000]), FitError, "attributes are a list; give columns by name"),
        ({}, _set("attributes", "a" * 2_000), FitError, "attributes are a str; give columns by name"),
        ({}, _set("attributes", {1: ["a"] * 2_000}), FitError, "an attribute has the name 1; names are text"),
        ({}, _set("attributes", {"a": "x" * 2_000}), FitError, "attribute 'a' is a str; give a list or an array"),
        ({}, _set("attributes", {"a": None}), FitError, "attribute 'a' is a NoneType"),
        ({}, _set("attributes", {"a": {str(i) for i in range(2_000)}}), FitError, "attribute 'a' is a set"),
        ({}, _set("attributes", {"a": (text for text in ["x"] * 2_000)}), FitError, "attribute 'a' is a generator"),
        ({}, _set("attributes", {"a": np.full((2_000, 2), "x")}), FitError, r"'a' has shape \(2000, 2\)"),
        ({}, _set("attributes", {"a": np.array("x")}), FitError, r"'a' has shape \(\)"),
        ({}, _set("attributes", {"a": [["x"]] * 2_000}), FitError, r"has the value \['x'\]; values are text"),
        ({}, _set("attributes", {"a": np.arange(2_000)}), FitError, "has the value 0; values are text"),
    ],
)
def test_refusals_of_data(
    parameters: dict[str, Any], change: Callable[[Rows], None], error: type[StreamCalibError], message: str
) -> None:
    score, label, attributes, _ = rows_of(2_000, 9)
    rows: Rows = {"scores": score, "labels": label, "attributes": attributes}
    change(rows)
    with pytest.raises(error, match=message):
        Multicalibrator(**parameters).fit(**rows)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        *((name, value, f"{name} = {value!r}; it is a whole number, ") for name, value in WRONG_WHOLE_NUMBERS),
        *((name, value, f"{name} = {value!r}; it is a finite number") for name, value in WRONG_NUMBERS),
        ("seed", 2**64, "from 0 to 2^64 - 1"),
        ("gamma", 0.0, "gamma = 0"),
        ("alpha_abs", 0.0, "alpha_abs = 0"),
        ("delta", 0.0, "delta = 0.0; it is an error probability, in (0, 1)"),
        ("delta", 1.0, "delta = 1.0; it is an error probability, in (0, 1)"),
        ("kappa", 0.0, "kappa = 0.0; it must be above 0"),
        ("ridge", -1.0, "ridge = -1.0; it must be above 0"),
        ("prior_strength", -1.0, "prior_strength = -1.0; it is a finite number, 0 or more"),
        ("p_min", 0.5, "p_min = 0.5; it must lie in [0, .5)"),
        ("intersections", "country", "intersections = 'country'; give a list of lists"),
        ("intersections", ["country"], "intersections = ['country']; give a list of lists"),
        ("intersections", [1], "intersections = [1]; give a list of lists"),
        ("intersections", [[1, 2]], "intersections = [[1, 2]]; give a list of lists"),
        ("intersections", [[]], "intersections = [[]]; give a list of lists"),
        ("intersections", None, "intersections = None; give a list of lists"),
        ("intersections", [["town", "device"]], "unknown attributes ['town']"),
        ("intersections", [["device", "device"]], "('device', 'device') names an attribute twice"),
        ("intersections", [["device"]], "depth = 1 makes ('device',) a family already"),
        ("intersections", [["device", "country"], ["country", "device"]], "cross ['country', 'device'] twice"),
        ("predicates", ["country"], "predicates = ['country']; give for each name"),
        ("predicates", {"abroad": ["c1"]}, "predicates = {'abroad': ['c1']}; give for each name"),
        ("predicates", {"abroad": {"country": 1}}, "predicates = {'abroad': {'country': 1}}; give for each name"),
        ("predicates", {1: {"country": ["c1"]}}, "predicates = {1: {'country': ['c1']}}; give for each name"),
    ],
)
def test_refusals_of_parameters(name: str, value: Any, message: str) -> None:
    score, label, attributes, _ = rows_of(2_000, 9)
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        Multicalibrator(**{name: value}).fit(score, label, attributes)


def test_whole_numbers_and_numbers_of_numpy_are_parameters() -> None:
    score, label, attributes, _ = rows_of(2_000, 9)
    plain = Multicalibrator(seed=3, depth=2, gamma=0.25)
    numpy = Multicalibrator(seed=np.uint64(3), depth=np.int8(2), gamma=np.float32(0.25))
    one, two = (made.fit(score, label, attributes).predict(score, attributes) for made in (plain, numpy))
    np.testing.assert_array_equal(one, two)


class Table:
    """What data frames have in common: columns by name."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def keys(self) -> list[str]:
        return list(self._columns)

    def __getitem__(self, name: str) -> list[str]:
        return self._columns[name]


def test_columns_are_taken_as_lists_arrays_and_tables(fitted: Multicalibrator) -> None:
    score, _, attributes, _ = rows_of(1_000, 9)
    expected = fitted.predict(score, attributes)
    text = {name: np.array(values) for name, values in attributes.items()}
    objects = {name: np.array(values, dtype=object) for name, values in attributes.items()}
    tuples = {name: tuple(values) for name, values in attributes.items()}
    table: Any = Table(attributes)
    np.testing.assert_array_equal(fitted.predict(score, text), expected)
    np.testing.assert_array_equal(fitted.predict(score, objects), expected)
    np.testing.assert_array_equal(fitted.predict(score, tuples), expected)
    np.testing.assert_array_equal(fitted.predict(score, table), expected)


def test_a_unit_is_the_text_of_its_id() -> None:
    numbers, texts = np.arange(100), [str(i) for i in range(100)]
    mixed = [i if i % 2 else str(i) for i in range(100)]
    one, two, three = (unit_parts(ids, 100, 5)[1] for ids in (numbers, texts, mixed))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one, three)


def test_a_score_that_ranks_the_wrong_way_round_is_told() -> None:
    score, label, attributes, _ = rows_of(4_000, 5)
    assert "warning" not in Multicalibrator().fit(score, label, attributes).summary()
    lines = Multicalibrator().fit(1 - score, label, attributes).summary().splitlines()
    assert lines[1].startswith("warning             platt was refused: Platt falls with the score")
    assert any(line.strip().startswith("if low scores mean likely outcomes, turn the score round") for line in lines)
    assert max(map(len, lines)) <= 110


def test_predictions_are_refused_for_other_attributes_and_lengths(fitted: Multicalibrator) -> None:
    with pytest.raises(ConfigurationError, match=r"attributes \['country'\]; the map was fitted with"):
        fitted.predict([0.5], {"country": ["c0"]})
    with pytest.raises(FitError, match="attributes are a list; give columns by name"):
        fitted.predict([0.5], ["c0"])  # type: ignore[arg-type]  # what is refused
    with pytest.raises(FitError, match="values are text"):
        fitted.explain(0.5, {"country": "c0", "device": None})  # type: ignore[dict-item]  # what is refused
    with pytest.raises(LengthMismatchError, match="attribute 'country' has 1 values for 2 rows"):
        fitted.predict([0.5, 0.6], {"country": ["c0"], "device": ["d0", "d1"]})


def test_buckets_are_even_independent_of_folds_and_belong_to_units() -> None:
    for ids in (None, np.arange(40_000), np.array([f"u{i}" for i in range(40_000)])):
        unit, bucket, fold = unit_parts(ids, 40_000, 7)
        joint = np.bincount(bucket * 5 + fold, minlength=100)
        # 100 cells of 400 expected: the chi square of 99 degrees exceeds 160 with probability 1e-4.
        assert ((joint - 400) ** 2 / 400).sum() < 160
        assert len(np.unique(unit)) == 40_000
        other = unit_parts(ids, 40_000, 8)[1]
        assert (other == bucket).mean() == pytest.approx(1 / 20, abs=0.006)
    few = np.array(["b", "a", "b", "c", "a"])
    unit, bucket, fold = unit_parts(few, 5, 0)
    assert unit.tolist() == [1, 0, 1, 2, 0]
    assert (bucket[0], fold[0], bucket[1], fold[1]) == (bucket[2], fold[2], bucket[4], fold[4])
    np.testing.assert_array_equal(unit_parts(few[:2], 2, 0)[1], bucket[:2])


def test_roles_share_all_buckets_without_overlap() -> None:
    roles = (FIT_BUCKETS, AUDIT_BUCKETS, CERTIFICATE_BUCKETS)
    assert sorted(bucket for role in roles for bucket in role) == list(range(20))
