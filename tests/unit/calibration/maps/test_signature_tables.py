"""Maps with slopes, predicates and patches, against the definition taken literally."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import expit

from stream_calib.calibration.grid import EDGE_LOG_ODDS, N_BINS
from stream_calib.calibration.groups import GroupKey
from stream_calib.calibration.maps.base_map import STRICT_SLOPE, BaseMap
from stream_calib.calibration.maps.parts import FamilyShift, MapParts, PatchRound
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.calibration.maps.signature_tables import SignatureTables
from stream_calib.errors import FitError
from tests.unit.calibration.maps.drawn_parts import RULES, SIGNATURES, some_parts
from tests.unit.calibration.maps.map_reference import reference_table

PLATEAUS = BaseMap(np.array([-4.0, -1.0, 0.0, 2.0]), np.array([0.02, 0.2, 0.2, 0.7]), 1e-6, STRICT_SLOPE)


def no_centre_on_an_edge(parts: MapParts, signature: tuple[str, ...]) -> bool:
    """Where a centre lies on an interval's edge, to rounding, either side is right."""
    for count, patches in enumerate(parts.rounds):
        before = MapParts(
            parts.base,
            parts.families,
            parts.level,
            parts.p_min,
            parts.slope_centre,
            parts.rounds[:count],
            parts.bin_weight,
        )
        centre = SignatureTables(before).of([signature])[0].mean(axis=1)
        if np.abs(centre[:, None] - np.array(patches.edges)).min() < 1e-9:
            return False
    return True


@given(some_parts(), st.sampled_from(SIGNATURES))
@settings(max_examples=150, deadline=None)
def test_a_table_is_that_of_the_definition(parts: MapParts, signature: tuple[str, ...]) -> None:
    assume(no_centre_on_an_edge(parts, signature))
    table = SignatureTables(parts).of([signature])[0]
    np.testing.assert_allclose(table, np.array(reference_table(parts, signature)), rtol=0, atol=1e-12)


@given(some_parts(), st.permutations(SIGNATURES))
@settings(max_examples=60, deadline=None)
def test_bits_do_not_depend_on_the_other_signatures_or_their_order(
    parts: MapParts, order: list[tuple[str, ...]]
) -> None:
    maker = SignatureTables(parts)
    together = dict(zip(order, maker.of(order), strict=True))
    for signature in SIGNATURES:
        assert maker.of([signature])[0].tobytes() == together[signature].tobytes()


@given(some_parts(), st.lists(st.floats(0, 1), min_size=2, max_size=40))
@settings(max_examples=60, deadline=None)
def test_it_increases_strictly_at_the_edges_and_never_falls_between(parts: MapParts, scores: list[float]) -> None:
    a_map = ServedMap(parts)
    for signature in SIGNATURES:
        at_edges = a_map.apply(expit(EDGE_LOG_ODDS), np.zeros(401, np.intp), [signature])
        assert (np.diff(at_edges) > 0).all()
        p = a_map.apply(np.sort(scores), np.zeros(len(scores), np.intp), [signature])
        assert (np.diff(p) >= 0).all()
        assert p.min() >= parts.p_min
        assert p.max() <= 1 - parts.p_min


def table_of(*rounds: PatchRound, slopes: Mapping[GroupKey, float] | None = None) -> NDArray[np.float64]:
    """Of UA at EWR, without offsets."""
    parts = MapParts(PLATEAUS, (FamilyShift(RULES[0], {}, slopes or {}),), rounds=rounds)
    return np.asarray(SignatureTables(parts).of([("UA", "EWR")])[0])


def test_an_interval_is_that_of_the_map_that_was_audited() -> None:
    """The second round sees what the first has made: probabilities of .4 and more are in another interval."""
    first = PatchRound(RULES[0], (0.0, 0.5, 1.0), {("UA",): (0.2, 0.1)})
    second = PatchRound(RULES[1], (0.0, 0.4, 1.0), {("EWR",): (0.0, 0.05)})
    plain, patched = table_of(), table_of(first, second)
    centre = plain.mean(axis=1)
    expected = np.where(centre < 0.2, 0.2, np.where(centre < 0.5, 0.25, 0.15))
    away = np.abs(centre[:, None] - [0.2, 0.5]).min(axis=1) > 0.01
    pooled = (centre > 0.35) & (centre < 0.65)  # the fall from +.25 to +.15
    np.testing.assert_allclose((patched - plain)[away & ~pooled].mean(axis=1), expected[away & ~pooled], atol=1e-5)


def test_a_fall_is_pooled_by_the_bins_weights() -> None:
    """.4 in bins 0 .. 240 and .6 in the others becomes .4 and .3: all are pooled at the weighted mean."""
    weight = np.where(np.arange(N_BINS) <= 240, 1.0, 3.0)
    step = BaseMap(np.array([2.0 - 1e-9, 2.0]), np.array([0.4, 0.6]), 1e-6, STRICT_SLOPE)
    patches = PatchRound(RULES[0], (0.0, 0.55, 1.0), {("UA",): (0.0, -0.3)})
    table = SignatureTables(MapParts(step, rounds=(patches,), bin_weight=weight)).of([("UA", "EWR")])[0]
    # Of bin 240 the upper edge is at .6, and its centre, .5, is not in the interval that is shifted.
    pooled = (240 * 0.4 + 0.5 + 161 * 3.0 * 0.3) / (241 + 161 * 3.0)
    np.testing.assert_allclose(table[1:-1], pooled, atol=1e-5)


def test_a_slope_turns_about_its_centre_and_a_plateau_it_would_break_is_pooled() -> None:
    plain, steeper, flatter = table_of(), table_of(slopes={("UA",): 0.1}), table_of(slopes={("UA",): -0.1})
    assert steeper[300, 0] > plain[300, 0]
    assert steeper[100, 0] < plain[100, 0]
    assert steeper[200, 1] == pytest.approx(plain[200, 1], abs=1e-9)  # raw log-odds 0
    assert (np.diff(flatter.ravel()) >= -1e-15).all()
    assert np.ptp(flatter[1:120]) < 3e-5  # the constant part below the first knot, which would fall


def test_a_patched_map_stays_within_its_limits() -> None:
    table = table_of(PatchRound(RULES[0], (0.0, 0.3, 1.0), {("UA",): (-1.0, 1.0)}))
    assert table.min() >= 1e-6
    assert table.max() <= 1 - 1e-6
    assert (np.diff(table[1:-1], axis=1) > 0).all()


def test_others_are_not_touched_by_a_round_to_the_bit() -> None:
    patches = PatchRound(RULES[2], (0.0, 1.0), {("EWR", "UA"): (0.1,)})
    with_round, without = MapParts(PLATEAUS, rounds=(patches,)), MapParts(PLATEAUS)
    others = [s for s in SIGNATURES if s != ("UA", "EWR")]
    assert SignatureTables(with_round).of(others).tobytes() == SignatureTables(without).of(others).tobytes()
    assert not np.allclose(
        SignatureTables(with_round).of([("UA", "EWR")]), SignatureTables(without).of([("UA", "EWR")])
    )


@pytest.mark.parametrize(
    ("edges", "shifts", "message"),
    [
        ((0.0, 0.5), (0.1,), r"must increase from 0 to 1; got \(0.0, 0.5\)"),
        ((0.0, 0.6, 0.5, 1.0), (0.1,) * 3, "must increase from 0 to 1"),
        ((0.0,), (), "must increase from 0 to 1"),
        ((0.0, 1.0), (0.1, 0.2), "carrier=UA needs 1 finite shifts"),
        ((0.0, 0.5, 1.0), (0.1, float("nan")), "carrier=UA needs 2 finite shifts"),
    ],
)
def test_a_round_that_is_none_is_refused(edges: tuple[float, ...], shifts: tuple[float, ...], message: str) -> None:
    with pytest.raises(FitError, match=message):
        PatchRound(RULES[0], edges, {("UA",): shifts})


def test_parts_that_are_not_numbers_are_refused() -> None:
    with pytest.raises(FitError, match="slope inf of carrier=UA must be finite"):
        FamilyShift(RULES[0], {("UA",): 0.1}, {("UA",): float("inf")})
    with pytest.raises(FitError, match="level nan"):
        MapParts(PLATEAUS, level=float("nan"))
    with pytest.raises(FitError, match=r"p_min = 0.5 must lie in \[0, .5\)"):
        MapParts(PLATEAUS, p_min=0.5)
    with pytest.raises(FitError, match="402 finite numbers above 0"):
        MapParts(PLATEAUS, bin_weight=np.ones(401))
