from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import expit

from stream_calib.calibration import BaseMap, ServedMap
from stream_calib.calibration.grid import EDGE_LOG_ODDS, N_BINS, locate, log_odds
from stream_calib.calibration.groups import family_rule
from stream_calib.calibration.maps.base_map import EDGES, STRICT_SLOPE
from stream_calib.calibration.maps.parts import FamilyShift, MapParts, PatchRound
from stream_calib.calibration.maps.signature_tables import SignatureTables
from tests.unit.calibration.maps.drawn_parts import SIGNATURES as DRAWN_SIGNATURES
from tests.unit.calibration.maps.drawn_parts import some_parts

BASE = BaseMap(np.array([-4.0, -1.0, 0.0, 2.0]), np.array([0.02, 0.2, 0.2, 0.7]), 1e-6, STRICT_SLOPE)
ATTRIBUTES = ["carrier", "origin"]
FAMILIES: list[tuple[str, ...]] = [("carrier",), ("origin",), ("carrier", "origin")]
OFFSETS: list[Mapping[tuple[str, ...], float]] = [
    {("UA",): 0.3, ("VX",): -0.8, ("__other__",): 5.0},
    {("EWR",): 0.1, ("JFK",): -20.0},
    {("UA", "EWR"): 0.05, ("UA", "__other__"): 5.0},
]
SIGNATURES = [
    ("UA", "EWR"),
    ("VX", "EWR"),
    ("UA", "LGA"),
    ("never seen", "EWR"),
    ("__other__", "__other__"),
    ("UA", "JFK"),
]
SHIFTS = [0.45, -0.7, 0.3, 0.1, 0.0, -19.7]


def served(level: float = 0.0, p_min: float = 1e-6, **more: Any) -> ServedMap:
    shifts = tuple(
        FamilyShift(family_rule(names, ATTRIBUTES), offsets) for names, offsets in zip(FAMILIES, OFFSETS, strict=True)
    )
    return ServedMap(MapParts(BASE, shifts, level, p_min), **more)


def at_edges(a_map: ServedMap, signature: tuple[str, ...]) -> NDArray[np.float64]:
    """(401,) probabilities at the edges of the grid."""
    return a_map.apply(expit(EDGE_LOG_ODDS), np.zeros(401, np.intp), [signature])


@pytest.mark.parametrize(("signature", "shift"), list(zip(SIGNATURES, SHIFTS, strict=True)))
def test_values_at_the_edges_are_those_of_the_definition(signature: tuple[str, ...], shift: float) -> None:
    expected = np.clip(expit(BASE.log_odds_at(EDGE_LOG_ODDS) + shift - 0.2), 1e-6, 1 - 1e-6)
    np.testing.assert_allclose(at_edges(served(-0.2), signature), expected, rtol=3e-5)


def test_is_linear_in_the_log_odds_inside_a_bin() -> None:
    a_map = served()
    x = -0.5 + 0.05 * np.array([0.0, 0.25, 0.5, 1.0])
    p = a_map.apply(expit(x), np.zeros(4, np.intp), SIGNATURES)
    np.testing.assert_allclose(p[1:3], p[0] + np.array([0.25, 0.5]) * (p[3] - p[0]), rtol=1e-10)


def test_the_value_at_a_centre_is_the_mean_of_the_edges() -> None:
    a_map = served(0.1)
    for i, signature in enumerate(SIGNATURES):
        edges = at_edges(a_map, signature)
        centres = a_map.at_centres(np.arange(N_BINS), np.full(N_BINS, i), SIGNATURES)
        np.testing.assert_allclose(centres[1:-1], (edges[:-1] + edges[1:]) / 2, rtol=1e-10)
        np.testing.assert_allclose(centres[[0, -1]], edges[[0, -1]], rtol=1e-10)


@pytest.mark.parametrize("signature", SIGNATURES)
@pytest.mark.parametrize("p_min", [1e-6, 0.1])
def test_ranks_are_kept_within_a_signature_also_at_the_limits(signature: tuple[str, ...], p_min: float) -> None:
    p = at_edges(served(0.0, p_min), signature)
    assert (np.diff(p) > 0).all()
    assert p.min() >= p_min
    assert p.max() <= 1 - p_min


@given(st.lists(st.floats(0, 1), min_size=2, max_size=50), st.sampled_from(SIGNATURES))
def test_a_higher_score_is_never_served_lower(values: list[float], signature: tuple[str, ...]) -> None:
    p = served().apply(np.sort(values), np.zeros(len(values), np.intp), [signature])
    assert (np.diff(p) >= 0).all()


def test_neighbouring_scores_across_every_edge_do_not_fall() -> None:
    edge = expit(EDGE_LOG_ODDS)
    around = np.sort(np.concatenate([edge + d * np.spacing(edge) for d in range(-6, 7)]))
    for signature in SIGNATURES:
        p = served().apply(around, np.zeros(len(around), np.intp), [signature])
        assert (np.diff(p) >= 0).all()


def test_the_last_bin_of_a_steep_map_does_not_pass_the_value_of_the_score_1() -> None:
    rng = np.random.default_rng(0)
    for low, high in zip(rng.uniform(0, 0.2, 100), rng.uniform(0.5, 1, 100), strict=True):
        steep = ServedMap(MapParts(BaseMap(np.array([9.96, 10.0]), np.array([low, high]), 1e-6, 0.0)))
        p = steep.apply(np.array([1 - 1e-9, 1.0]), np.zeros(2, np.intp), [()])
        assert p[0] <= p[1]


def test_bounds_and_beyond_the_grid() -> None:
    p = served().apply(np.array([0.0, 1e-300, 1e-6, 1 - 1e-12, 1.0]), np.zeros(5, np.intp), SIGNATURES)
    assert p[0] == p[1] == p[2] == at_edges(served(), SIGNATURES[0])[0]
    assert p[3] == p[4] == at_edges(served(), SIGNATURES[0])[-1]


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 5)), min_size=1, max_size=60), st.integers(1, 6))
@settings(max_examples=60)
def test_the_same_score_gives_the_same_bits_alone_in_any_batch_and_with_any_room(
    rows: list[tuple[float, int]], max_compiled: int
) -> None:
    score, index = np.array([s for s, _ in rows]), np.array([i for _, i in rows])
    together = served().apply(score, index, SIGNATURES)
    small = served(max_compiled=max_compiled)
    alone = [small.apply(score[i : i + 1], np.zeros(1, np.intp), [SIGNATURES[index[i]]])[0] for i in range(len(rows))]
    assert np.array(alone).tobytes() == together.tobytes()
    assert small.apply(score, index, SIGNATURES).tobytes() == together.tobytes()
    assert small.apply(score[::-1], index[::-1], SIGNATURES)[::-1].tobytes() == together.tobytes()
    strided = np.stack([score, score], axis=1)[:, 1]
    assert small.apply(strided, index, SIGNATURES).tobytes() == together.tobytes()


def test_memory_is_bounded_and_a_batch_may_have_more_signatures_than_fit() -> None:
    rng = np.random.default_rng(5)
    signatures = [(f"carrier {i}", "EWR") for i in range(100)]
    offsets: dict[tuple[str, ...], float] = {(f"carrier {i}",): i / 100 for i in range(100)}
    parts = MapParts(BASE, (FamilyShift(family_rule(("carrier",), ["carrier"]), offsets),))
    roomy = ServedMap(parts)
    tight = ServedMap(parts, max_compiled=7)
    for _ in range(5):
        score, index = rng.random(500), rng.integers(0, 100, 500)
        assert tight.apply(score, index, signatures).tobytes() == roomy.apply(score, index, signatures).tobytes()
        grid_bin = locate(score)[0]
        assert (tight.at_centres(grid_bin, index, signatures) == roomy.at_centres(grid_bin, index, signatures)).all()
    assert tight.compiled == 7
    assert roomy.compiled == 100


def test_no_rows() -> None:
    empty = np.empty(0)
    assert served().apply(empty, np.empty(0, np.intp), []).shape == (0,)
    assert served().at_centres(np.empty(0, np.uint16), np.empty(0, np.intp), SIGNATURES).shape == (0,)


def test_without_offsets_it_is_the_base_map_to_the_width_of_a_bin() -> None:
    a_map = ServedMap(MapParts(BASE))
    score = np.random.default_rng(2).random(2000)
    p = a_map.apply(score, np.zeros(2000, np.intp), [()])
    assert np.abs(p - BASE.probability_at(log_odds(score))).max() < 2e-3
    np.testing.assert_allclose(at_edges(a_map, ()), expit(BASE.log_odds_at(EDGES[1:, 0])), rtol=1e-9)


@given(st.integers(0, 100_000), st.sampled_from([1e-6, 0.1]), st.booleans())
@settings(max_examples=30, deadline=None)
def test_few_values_without_tables_are_those_of_the_tables_to_the_bit(seed: int, p_min: float, level: bool) -> None:
    rng = np.random.default_rng(seed)
    few, place = rng.integers(0, N_BINS, 40), rng.integers(0, len(SIGNATURES), 40)
    compiled, direct = (served(0.37 if level else 0.0, p_min) for _ in range(2))
    compiled.apply(np.full(len(SIGNATURES), 0.5), np.arange(len(SIGNATURES)), SIGNATURES)
    assert compiled.compiled == len(SIGNATURES)
    edges = direct.at_edges(few, place, SIGNATURES)
    assert np.array_equal(edges, compiled.at_edges(few, place, SIGNATURES))
    assert np.array_equal(direct.at_centres(few, place, SIGNATURES), compiled.at_centres(few, place, SIGNATURES))
    assert direct.compiled == 0


@given(some_parts(), st.integers(0, 100_000))
@settings(max_examples=100, deadline=None)
def test_few_values_of_any_map_are_those_of_its_tables_to_the_bit(parts: MapParts, seed: int) -> None:
    rng = np.random.default_rng(seed)
    few, place = rng.integers(0, N_BINS, 40), rng.integers(0, len(DRAWN_SIGNATURES), 40)
    tables = SignatureTables(parts).of(DRAWN_SIGNATURES)
    direct = ServedMap(parts)
    assert np.array_equal(direct.at_edges(few, place, DRAWN_SIGNATURES), tables[place, few])
    assert np.array_equal(direct.at_centres(few, place, DRAWN_SIGNATURES), tables[place, few].mean(axis=1))


def test_only_signatures_that_are_patched_or_may_be_projected_get_tables_for_few_values() -> None:
    rule = family_rule(["carrier"], ATTRIBUTES)
    rising = FamilyShift(rule, {("UA",): 0.1, ("VX",): 0.1, ("new",): 0.1}, {("UA",): 0.3, ("VX",): -0.1})
    patches = PatchRound(rule, (0.0, 1.0), {("new",): (0.1,)})
    steep = BaseMap(np.array([-10.0, 10.0]), np.array([0.01, 0.99]), 1e-6, STRICT_SLOPE)
    signatures = [("UA", "EWR"), ("VX", "EWR"), ("new", "EWR")]

    def compiled(base: BaseMap, of: Sequence[int]) -> int:
        a_map = ServedMap(MapParts(base, (rising,), rounds=(patches,)))
        a_map.at_edges(np.full(len(of), 200), np.array(of), signatures)
        return a_map.compiled

    # This base map is flat beyond its outer knots, where a negative slope falls; the other rises everywhere by more.
    assert [compiled(BASE, [i]) for i in range(3)] == [0, 1, 1]
    assert [compiled(steep, [i]) for i in range(3)] == [0, 0, 1]
    assert compiled(BASE, [0, 1, 2]) == 2
