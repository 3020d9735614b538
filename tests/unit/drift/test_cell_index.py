from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.calibration.groups import OTHER, family_rule
from stream_calib.calibration.multicalibration.audit import EVERYTHING
from stream_calib.drift.cell_index import CellIndex, IndexedFamily
from stream_calib.drift.residual import ResidualSums

EDGES = (0.0, 0.25, 0.5, 1.0)
REGION = family_rule(("region",), ["region", "device"])
PAIR = family_rule(("region", "device"), ["region", "device"])
INDEX = CellIndex(
    [
        IndexedFamily(EVERYTHING, {("all",): 0}, np.array([[0]])),
        IndexedFamily(EVERYTHING, {("all",): 0}, np.array([[1, -1, 2]])),
        IndexedFamily(REGION, {("eu",): 0, ("us",): 1}, np.array([[3], [4]])),
        IndexedFamily(REGION, {("us",): 0}, np.array([[-1, 5, 6]])),
        IndexedFamily(PAIR, {("eu", "tv"): 0}, np.array([[7]])),
    ],
    EDGES,
    8,
)
VALUES = [(r, d) for r in ("eu", "us", "new", OTHER) for d in ("tv", "pc")]


def cells_of(values: tuple[str, str], p: float) -> set[int]:
    """By the rules, one by one."""
    region, device = values
    interval = 0 if p < 0.25 else 1 if p < 0.5 else 2
    found = {0} | ({1} if interval == 0 else {2} if interval == 2 else set())
    found |= {3} if region == "eu" else {4} if region == "us" else set()
    found |= {5} if region == "us" and interval == 1 else {6} if region == "us" and interval == 2 else set()
    return found | ({7} if (region, device) == ("eu", "tv") else set())


entries = st.lists(
    st.tuples(
        st.integers(0, len(VALUES) - 1),
        st.one_of(st.sampled_from([0.0, 0.25, 0.4999999999, 0.5, 1.0]), st.floats(0, 1)),
        st.integers(0, 10**6),
        st.floats(0, 1),
    ),
    max_size=30,
)


def summed(rows: list[tuple[int, float, int, float]]) -> ResidualSums:
    place = np.array([r[0] for r in rows], dtype=np.intp)
    p = np.array([r[1] for r in rows], dtype=np.float64)
    n = np.array([r[2] for r in rows], dtype=np.int64)
    positives = np.array([int(r[2] * r[3]) for r in rows], dtype=np.int64)
    return INDEX.sums(INDEX.rows_of(VALUES)[place], p, p, n, positives)


@settings(max_examples=40, deadline=None)
@given(entries, st.randoms())
def test_sums_are_those_of_the_rules_and_the_same_bits_in_any_order(
    rows: list[tuple[int, float, int, float]], random: object
) -> None:
    found = summed(rows)
    expected: dict[int, list[float]] = defaultdict(lambda: [0, 0, 0.0])
    for place, p, n, share in rows:
        for cell in cells_of(VALUES[place], p):
            expected[cell][0] += n
            expected[cell][1] += int(n * share)
            expected[cell][2] += n * p
    for cell in range(8):
        inside = found.cell == cell
        assert found.labelled[inside].sum() == expected[cell][0]
        assert found.positives[inside].sum() == expected[cell][1]
        mean_error = (found.labelled * found.served)[inside].sum() - expected[cell][2]
        assert abs(mean_error) <= 1e-9 * max(1.0, expected[cell][0])
    assert (found.labelled > 0).all()
    assert ((found.served >= 0) & (found.served <= 1)).all()
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    again = summed([*shuffled, (0, 0.3, 0, 0.0)])
    for name in ("cell", "served", "labelled", "positives"):
        assert np.array_equal(getattr(found, name), getattr(again, name))


def test_a_level_is_taken_at_its_mean_which_can_only_lessen_evidence() -> None:
    """Two rows of one grid bin in log-odds: log(1 + f (e^d - 1)) at the mean is at least the mean of both."""
    low, high = 0.301, 0.309
    found = summed([(2, low, 1000, 0.4), (2, high, 3000, 0.4)])
    (served,) = found.served[found.cell == 0].tolist()
    assert served == (low + 3 * high) / 4 or abs(served - (low + 3 * high) / 4) < 1e-9
    for d in (-1.6, -0.15, 0.15, 1.6):
        at_mean = 4000 * math.log1p(served * math.expm1(d))
        apart = 1000 * math.log1p(low * math.expm1(d)) + 3000 * math.log1p(high * math.expm1(d))
        assert at_mean >= apart - 1e-4
