from __future__ import annotations

import pytest

from stream_calib.calibration.groups import families_up_to, family_rule, make_family, predicate_rule
from stream_calib.errors import ConfigurationError

SIGNATURES = [("b", "y"), ("a", "__other__"), ("a", "x"), ("b", "y")]


def test_families_are_sorted_and_leave_other_out() -> None:
    family = make_family(family_rule(("second", "first"), ["first", "second"]), SIGNATURES)
    assert family.keys == (("x", "a"), ("y", "b"))
    assert family.group_of.tolist() == [1, -1, 0, 1]
    assert family.names == ["second=x & first=a", "second=y & first=b"]


def test_a_predicate_is_a_family_of_one_group() -> None:
    rule = predicate_rule("wanted", {"first": ["a", "b"], "second": ["y"]}, ["first", "second"])
    family = make_family(rule, SIGNATURES)
    assert rule.name == "wanted"
    assert family.keys == (("wanted",),)
    assert family.group_of.tolist() == [0, -1, -1, 0]
    assert family.names == ["wanted"]


def test_intersections_come_by_depth() -> None:
    names = [rule.name for rule in families_up_to(2, ["a", "b", "c"])]
    assert names == ["a", "b", "c", "a & b", "a & c", "b & c"]


def test_an_unknown_attribute_is_named() -> None:
    with pytest.raises(ConfigurationError, match="zone"):
        family_rule(("zone",), ["carrier"])
    with pytest.raises(ConfigurationError, match="at least one attribute"):
        predicate_rule("none", {}, ["carrier"])


@pytest.mark.parametrize("admitted", ["UA", [1, 2], ["UA", None]])
def test_values_that_a_predicate_admits_are_lists_of_texts(admitted: list[str]) -> None:
    with pytest.raises(ConfigurationError, match=r"predicate 'big' admits .*; give a list of texts"):
        predicate_rule("big", {"carrier": admitted}, ["carrier"])
