"""Maps with everything in them, drawn by hypothesis, and signatures of the groups that they know and do not know."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from stream_calib.calibration.grid import N_BINS
from stream_calib.calibration.groups import FamilyRule, GroupKey, family_rule, predicate_rule
from stream_calib.calibration.maps.base_map import STRICT_SLOPE, BaseMap
from stream_calib.calibration.maps.parts import FamilyShift, MapParts, PatchRound

ATTRIBUTES = ("carrier", "origin")
CARRIERS, ORIGINS = ("UA", "VX"), ("EWR", "JFK")
SIGNATURES = list(itertools.product(("UA", "VX", "new", "__other__"), ("EWR", "JFK", "__other__")))
RULES = [
    family_rule(["carrier"], ATTRIBUTES),
    family_rule(["origin"], ATTRIBUTES),
    family_rule(["origin", "carrier"], ATTRIBUTES),
    predicate_rule("UA, not JFK", {"carrier": ["UA"], "origin": ["EWR", "LGA"]}, ATTRIBUTES),
]


def groups_of(rule: FamilyRule) -> list[GroupKey]:
    if rule.predicate is not None:
        return [(rule.predicate,)]
    values = {"carrier": CARRIERS, "origin": ORIGINS}
    return list(itertools.product(*(values[name] for name in rule.attributes)))


@st.composite
def some_parts(draw: st.DrawFn) -> MapParts:
    def numbers(rule: FamilyRule, size: float) -> Mapping[GroupKey, float]:
        return draw(st.dictionaries(st.sampled_from(groups_of(rule)), st.floats(-size, size), max_size=4))

    values = sorted(draw(st.lists(st.floats(0, 1), min_size=1, max_size=6)))
    knots = sorted(draw(st.lists(st.floats(-8, 8), min_size=len(values), max_size=len(values), unique=True)))
    assume(all(b - a > 1e-3 for a, b in itertools.pairwise(knots)))
    base = BaseMap(np.array(knots), np.array(values), draw(st.sampled_from([1e-6, 1e-3])), STRICT_SLOPE)
    families = tuple(FamilyShift(rule, numbers(rule, 3.0), numbers(rule, 0.6)) for rule in draw(st.permutations(RULES)))
    rounds = []
    for _ in range(draw(st.integers(0, 4))):
        rule = draw(st.sampled_from(RULES))
        inner = sorted(draw(st.lists(st.floats(0.001, 0.999), max_size=5, unique=True)))
        shift = st.tuples(*(st.floats(-0.5, 0.5) for _ in range(len(inner) + 1)))
        shifts = draw(st.dictionaries(st.sampled_from(groups_of(rule)), shift, max_size=4))
        rounds.append(PatchRound(rule, (0.0, *inner, 1.0), shifts))
    weight = np.random.default_rng(draw(st.integers(0, 99))).lognormal(0, 2, N_BINS)
    p_min = draw(st.sampled_from([1e-6, 1e-4, 0.05]))
    return MapParts(base, families, draw(st.floats(-1, 1)), p_min, draw(st.floats(-3, 3)), tuple(rounds), weight)
