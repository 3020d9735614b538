"""The certificate: its bounds hold for all cells at once, and it says when the rows do not suffice."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import beta, binom

from stream_calib.calibration.groups import family_rule, make_family
from stream_calib.calibration.labelled_cells import LabelledCells
from stream_calib.calibration.multicalibration.audit import audit
from stream_calib.calibration.multicalibration.certificate import Certificate, certify
from stream_calib.calibration.multicalibration.chernoff_bounds import divergence, lower_limit, upper_limit
from stream_calib.calibration.multicalibration.target import AuditTarget
from stream_calib.errors import ConfigurationError
from tests.unit.calibration.multicalibration.small_worlds import ALL_FAMILIES, IDENTITY, World, world

TARGET = AuditTarget(gamma=0.05, alpha_abs=0.05, alpha_rel=0.0)


def certificate_of(cells: LabelledCells, law: World, earlier: LabelledCells, delta: float) -> Certificate:
    reports = law.reports(IDENTITY)
    found, before = (audit(part, reports, ALL_FAMILIES, TARGET) for part in (cells, earlier))
    return certify(found, float(cells.labelled.sum()), before, float(earlier.labelled.sum()), TARGET, delta)


@pytest.mark.parametrize(("rows", "shift", "delta"), [(400, 0.0, 0.1), (4_000, 0.15, 0.1), (60_000, 0.03, 0.3)])
def test_all_claims_hold_at_once_with_the_stated_probability(rows: int, shift: float, delta: float) -> None:
    runs, wrong = 1_000, 0
    law = world(11, shift)
    truths = law.audits(IDENTITY, TARGET)
    heavy = {(f, g, i) for f, found in enumerate(truths) for g, i in np.argwhere(found.rows >= TARGET.gamma).tolist()}
    largest = max(abs(truths[f].residual[g, i]) for f, g, i in heavy)
    random = np.random.default_rng(5)
    earlier = law.cells(rows, random)
    for _ in range(runs):
        made = certificate_of(law.cells(rows, random), law, earlier, delta)
        places = list(zip(made.family.tolist(), made.group.tolist(), made.interval.tolist(), strict=True))
        # Where a listed cell has no rows in the law itself, it has no residual to be wrong about.
        truth = np.array([truths[f].residual[g, i] for f, g, i in places])
        outside = (np.abs(truth - made.residual) > made.half_width + 1e-12).any()
        wrong += bool(outside) or not heavy <= set(places) or largest > made.alpha_claimed + 1e-12
    assert wrong <= binom.ppf(1 - 1e-6, runs, delta)


def test_enough_rows_certify_a_true_map_and_refute_a_false_one() -> None:
    random = np.random.default_rng(2)
    right, wrong = world(1), world(1, 0.2)

    certified = certificate_of(right.cells(200_000, random), right, right.cells(200_000, random), 0.05)
    violated = certificate_of(wrong.cells(200_000, random), wrong, wrong.cells(200_000, random), 0.05)

    assert certified.status == "certified"
    assert certified.detectable_alpha < certified.alpha_claimed <= 0.05
    assert violated.status == "violated"
    assert violated.alpha_claimed > np.abs(violated.residual).max() > 0.05
    assert re.fullmatch(r"(all|country=c\d|device=d\d)(, | & device=d\d, )\[0\.\d+, 0\.\d+\)", violated.cell_name(0))


def test_few_rows_are_uncertified_with_the_smallest_alpha_that_they_could_have_shown() -> None:
    random, law = np.random.default_rng(2), world(1)
    made = certificate_of(law.cells(2_000, random), law, law.cells(2_000, random), 0.05)

    assert made.status == "uncertified"
    assert made.detectable_alpha == made.half_width.max()
    assert 0.05 < made.detectable_alpha < made.alpha_claimed < 0.6


def test_without_rows_nothing_is_claimed() -> None:
    law = world(1)
    none = law.cells(0, np.random.default_rng(0))
    made = certificate_of(none, law, none, 0.05)
    assert (made.status, made.alpha_claimed, made.detectable_alpha, made.total_rows) == ("uncertified", 1.0, 1.0, 0.0)


def test_cells_that_are_off_come_first_then_the_heaviest() -> None:
    random, law = np.random.default_rng(2), world(1, 0.3)
    made = certificate_of(law.cells(20_000, random), law, law.cells(20_000, random), 0.05)
    off_by, at_most = np.abs(made.residual) - made.half_width, np.abs(made.residual) + made.half_width
    tier = np.where(off_by > made.alpha, 0, np.where(at_most <= made.alpha, 2, 1))
    assert (np.diff(tier) >= 0).all()
    assert np.unique(tier).tolist() == [0, 1, 2]
    assert (np.diff((off_by / made.alpha)[tier == 0]) <= 0).all()
    for later in (1, 2):
        assert (np.diff(made.rows[tier == later]) <= 0).all()
        assert (tier == later).any()


def test_where_nothing_is_known_the_heaviest_cells_come_first() -> None:
    random, law = np.random.default_rng(2), world(1)
    made = certificate_of(law.cells(300, random), law, law.cells(300, random), 0.05)
    assert made.status == "uncertified"
    assert made.rows[0] == made.rows.max() > 5 * made.rows.min()


def test_thin_cells_cost_little() -> None:
    """A family of 5,000 thin groups beside one heavy one widens its interval by a tenth at most, not by what 5,000
    times the cells would cost without earlier data."""
    signatures = [(f"c{i}", "d") for i in range(5_000)]
    n = 200_000
    cells = LabelledCells(
        signatures,
        np.arange(5_000),
        np.full(5_000, 200),
        np.full(5_000, n / 5_000),
        np.full(5_000, n / 10_000),
    )
    reports = np.full(5_000, 0.5)
    families = [make_family(family_rule((name,), ("country", "device")), signatures) for name in ("device", "country")]

    def width(count: int) -> float:
        found = audit(cells, reports, families[:count], TARGET)
        made = certify(found, n, found, n, TARGET, 0.05)
        assert made.rows.tolist() == [n]
        return float(made.half_width[0])

    assert width(1) <= width(2) <= 1.1 * width(1)


def test_units_of_many_rows_widen_the_bounds_as_fewer_rows_would() -> None:
    law, random = world(1), np.random.default_rng(3)
    cells = law.cells(40_000, random)
    quarter = LabelledCells(cells.signatures, cells.signature, cells.grid_bin, cells.labelled / 4, cells.positives / 4)
    found, fewer = (audit(part, law.reports(IDENTITY), ALL_FAMILIES, TARGET) for part in (cells, quarter))
    of_units = certify(found, 40_000, found, 40_000, TARGET, 0.05, largest_unit=4.0)
    of_fewer = certify(fewer, 10_000, fewer, 10_000, TARGET, 0.05)
    np.testing.assert_allclose(of_units.half_width, of_fewer.half_width, rtol=1e-12)


def test_delta_must_be_a_probability() -> None:
    with pytest.raises(ConfigurationError, match=r"delta = 1\.0; the certificate's error probability"):
        certify([], 1.0, [], 1.0, TARGET, 1.0)


@settings(max_examples=100, deadline=None)
@given(q=st.floats(0, 1), allowed=st.floats(1e-6, 5))
def test_limits_solve_the_divergence(q: float, allowed: float) -> None:
    rate, room = np.array([q]), np.array([allowed])
    high, low = upper_limit(rate, room), lower_limit(rate, room)
    assert 0 <= low[0] <= q <= high[0] <= 1
    for limit in (low, high):
        if 1e-12 < limit[0] < 1 - 1e-12:
            assert divergence(rate, limit)[0] == pytest.approx(allowed, rel=1e-3, abs=1e-9)


@pytest.mark.parametrize("n", [5, 40, 1_000, 30_000])
def test_limits_are_wider_than_those_of_clopper_and_pearson_but_not_by_much(n: int) -> None:
    tail = 2e-5
    k = np.unique(np.linspace(0, n, 41).round())
    rate, allowed = k / n, np.full(len(k), np.log(1 / tail) / n)
    upper = np.where(k < n, beta.ppf(1 - tail, k + 1, n - k), 1.0)
    found: NDArray[np.float64] = upper_limit(rate, allowed)
    assert (found >= upper - 1e-9).all()
    assert (found - rate <= 1.3 * (upper - rate) + 1e-9).all()


def test_limits_of_unequal_probabilities() -> None:
    """The sum of labels with different probabilities (enumerated) misses its mean by the limit with probability <= the
    stated one, also where one is sure and the others hardly ever happen."""
    tail = 0.05
    for probabilities in ([1.0, 0.01, 0.01, 0.01], [0.5] * 6, [0.9, 0.1, 0.5], [0.002] * 5):
        law = np.array([1.0])
        for p in probabilities:
            law = np.convolve(law, [1 - p, p])
        n, mean = len(probabilities), float(np.mean(probabilities))
        rate, allowed = np.arange(n + 1) / n, np.full(n + 1, np.log(1 / tail) / n)
        assert law[upper_limit(rate, allowed) < mean].sum() <= tail
        assert law[lower_limit(rate, allowed) > mean].sum() <= tail
