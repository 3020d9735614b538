from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.calibration.groups import family_rule, predicate_rule
from stream_calib.calibration.maps.base_map import STRICT_SLOPE, BaseMap
from stream_calib.calibration.maps.explanation import explain
from stream_calib.calibration.maps.parts import FamilyShift, MapParts, PatchRound
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.errors import FitError, NonFiniteInputError, ScoreRangeError
from tests.unit.calibration.maps.drawn_parts import SIGNATURES, some_parts

ATTRIBUTES = ["carrier", "origin"]
IDENTITY = BaseMap(np.linspace(-10, 10, 401), 1 / (1 + np.exp(-np.linspace(-10, 10, 401))), 1e-6, STRICT_SLOPE)
PARTS = MapParts(
    IDENTITY,
    (
        FamilyShift(family_rule(["carrier"], ATTRIBUTES), {("UA",): 0.5}, {("UA",): 0.25}),
        FamilyShift(family_rule(["origin"], ATTRIBUTES), {("JFK",): -0.1}),
        FamilyShift(predicate_rule("coast", {"origin": ["EWR"]}, ATTRIBUTES), {("coast",): -0.2}),
    ),
    0.1,
    slope_centre=-2.0,
    rounds=(
        PatchRound(family_rule(["origin"], ATTRIBUTES), (0.0, 0.5, 1.0), {("EWR",): (-0.05, 0.03), ("JFK",): (0.1, 0)}),
        PatchRound(family_rule(["carrier"], ATTRIBUTES), (0.0, 1.0), {("VX",): (0.2,)}),
    ),
)


def expit(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_each_part_that_moved_the_event_is_named_in_order() -> None:
    found = explain(PARTS, 0.5, ("UA", "EWR"))
    assert [(s.kind, s.group) for s in found.steps] == [
        ("base", None),
        ("offset", "carrier=UA"),
        ("slope", "carrier=UA"),
        ("offset", "coast"),
        ("level", None),
        ("patch", "origin=EWR"),
    ]
    assert [s.log_odds for s in found.steps] == pytest.approx([0.0, 0.5, 0.5, -0.2, 0.1, None], abs=1e-9)
    expected = [expit(x) for x in (0, 0.5, 1.0, 0.8, 0.9)]
    assert [s.after for s in found.steps] == pytest.approx([*expected, expected[-1] + 0.03], abs=2e-6)
    assert found.steps[0].before == 0.5


def test_where_nothing_is_projected_a_patch_is_one_step() -> None:
    for score in (0.1, 0.37, 0.9, 0.999):
        kinds = [step.kind for step in explain(PARTS, score, ("UA", "EWR")).steps]
        assert kinds == ["base", "offset", "slope", "offset", "level", "patch"]


def test_nothing_is_said_of_groups_that_the_map_does_not_know() -> None:
    steps = explain(MapParts(IDENTITY, PARTS.families, rounds=PARTS.rounds), 0.3, ("B6", "__other__")).steps
    assert [s.kind for s in steps] == ["base"]


def test_a_projection_is_a_step_of_its_own() -> None:
    falling = PatchRound(family_rule(["carrier"], ATTRIBUTES), (0.0, 0.5, 1.0), {("UA",): (0.0, -0.2)})
    found = explain(MapParts(IDENTITY, rounds=(falling,)), 0.51, ("UA", "EWR"))
    assert [s.kind for s in found.steps] == ["base", "patch", "kept_increasing"]
    assert found.steps[1].after == pytest.approx(0.31, abs=1e-4)
    assert 0.35 < found.probability < 0.45


def test_the_text() -> None:
    lines = str(explain(PARTS, 0.5, ("UA", "EWR"))).splitlines()
    assert lines[0] == "raw score 0.5 is served as 0.74095"
    assert lines[1].split() == ["log-odds", "change", "probability"]
    assert [line.split("  ")[0] for line in lines[2:]] == [
        "base map",
        "offset carrier=UA",
        "slope carrier=UA",
        "offset coast",
        "level",
        "patch origin=EWR",
    ]
    assert lines[3].split() == ["offset", "carrier=UA", "+0.5000", "+0.122459", "0.622459"]


@given(some_parts(), st.floats(0, 1), st.sampled_from(SIGNATURES))
@settings(max_examples=150, deadline=None)
def test_the_steps_lead_to_what_is_served_to_the_bit(parts: MapParts, score: float, signature: tuple[str, ...]) -> None:
    found = explain(parts, score, signature)
    served = ServedMap(parts).apply(np.array([score]), np.zeros(1, np.intp), [signature])[0]
    assert found.probability == served
    assert all(one.after == two.before for one, two in zip(found.steps, found.steps[1:], strict=False))
    total = math.fsum([found.steps[0].after, *(step.change for step in found.steps[1:])])
    assert total == pytest.approx(served, abs=1e-15)


@pytest.mark.parametrize(
    ("score", "error", "message"),
    [
        (float("nan"), NonFiniteInputError, "the score is nan"),
        (1.5, ScoreRangeError, r"1.5 lies outside \[0, 1\]"),
        (-0.1, ScoreRangeError, r"-0.1 lies outside \[0, 1\]"),
    ],
)
def test_a_score_that_is_none_is_refused(score: float, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        explain(PARTS, score, ("UA", "EWR"))


def test_what_is_no_event_is_refused() -> None:
    with pytest.raises(FitError, match="the score is 'high'; a score is one number"):
        explain(PARTS, "high", ("UA", "JFK"))  # type: ignore[arg-type]  # what is tested
    with pytest.raises(FitError, match=r"the event's values are .*None.*; values are text"):
        explain(PARTS, 0.5, (None, "JFK"))  # type: ignore[arg-type]  # what is tested
