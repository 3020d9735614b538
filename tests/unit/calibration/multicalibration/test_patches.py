"""Proposals: which family, which cells, how far."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_calib.calibration.groups import family_rule, make_family
from stream_calib.calibration.maps.parts import PatchRound
from stream_calib.calibration.multicalibration.audit import FamilyAudit, audit
from stream_calib.calibration.multicalibration.patches import propose_round, shrunk_shift
from stream_calib.calibration.multicalibration.target import AuditTarget
from tests.unit.calibration.multicalibration.small_worlds import ALL_FAMILIES, IDENTITY, world

TARGET = AuditTarget(gamma=0.05, alpha_abs=0.02, alpha_rel=0.0, edges=(0.0, 0.5, 1.0))
NAMES = ("country", "device")
SIGNATURES = [("a", "x"), ("b", "x")]
COUNTRY = make_family(family_rule(("country",), NAMES), SIGNATURES)
DEVICE = make_family(family_rule(("device",), NAMES), SIGNATURES)


def found(family: object, rows: list[list[float]], residual: list[list[float]], f: float = 0.3) -> FamilyAudit:
    n = np.array(rows)
    assert family in (COUNTRY, DEVICE)
    return FamilyAudit(
        COUNTRY if family is COUNTRY else DEVICE, n, n * (f + np.array(residual)), n * f, n * f * (1 - f)
    )


def propose(audits: list[FamilyAudit], min_group_rows: float = 30.0, largest_unit: float = 1.0) -> PatchRound | None:
    return propose_round(audits, 10_000.0, TARGET, min_group_rows, largest_unit)


@given(r=st.floats(-1, 1), v=st.floats(0, 1))
def test_shrinkage_is_the_posterior_mean_under_the_prior_that_fits_best(r: float, v: float) -> None:
    shift = float(shrunk_shift(np.array([r]), np.array([v]))[0])
    prior = max(0.0, r * r - v)
    assert shift == pytest.approx(r * prior / (prior + v) if prior + v > 0 else 0.0, abs=1e-12)
    assert abs(shift) <= abs(r)


def test_shrunk_shifts_are_nearer_to_small_truths_than_residuals() -> None:
    random = np.random.default_rng(1)
    for truth in (0.0, 0.5):  # in standard deviations of the noise
        r = truth + random.normal(size=100_000)
        shrunk = shrunk_shift(r, np.ones_like(r))
        assert ((shrunk - truth) ** 2).mean() < 0.8 * ((r - truth) ** 2).mean()


def test_only_cells_that_are_off_are_patched_by_their_shrunk_residual() -> None:
    proposed = propose([found(COUNTRY, [[4_000, 1_000], [4_000, 1_000]], [[0.05, 0.0], [0.01, -0.2]])])
    assert proposed is not None
    assert (proposed.rule, proposed.edges) == (COUNTRY.rule, TARGET.edges)
    shrink = 1 - 0.21 / 4_000 / 0.05**2, 1 - 0.21 / 1_000 / 0.2**2
    assert proposed.shifts == {
        ("a",): (pytest.approx(0.05 * shrink[0]), 0.0),
        ("b",): (0.0, pytest.approx(-0.2 * shrink[1])),
    }
    assert all(s == float(f"{s:.12g}") for row in proposed.shifts.values() for s in row)


def test_the_family_with_the_larger_fall_is_taken() -> None:
    one = found(DEVICE, [[8_000, 2_000]], [[0.03, 0.0]])
    two = found(COUNTRY, [[4_000, 1_000], [4_000, 1_000]], [[0.06, 0.0], [0.0, 0.0]])
    for audits in ([one, two], [two, one]):
        proposed = propose(audits)
        assert proposed is not None
        assert proposed.rule == COUNTRY.rule


@pytest.mark.parametrize(
    ("rows", "residual", "min_group_rows", "largest_unit"),
    [
        (499.0, 0.2, 30.0, 1.0),  # mass below gamma
        (4_000.0, 0.0199, 30.0, 1.0),  # within alpha
        (600.0, 0.2, 601.0, 1.0),  # too few of the group
        (600.0, 0.022, 30.0, 1.0),  # within noise
        (4_000.0, 0.05, 30.0, 40.0),  # within the noise of so large units
    ],
)
def test_no_round_where_none_is_due(rows: float, residual: float, min_group_rows: float, largest_unit: float) -> None:
    audits = [found(DEVICE, [[rows, 0.0]], [[residual, 0.0]])]
    assert propose(audits, min_group_rows, largest_unit) is None
    assert propose([found(DEVICE, [[4_000.0, 0.0]], [[residual + 0.1, 0.0]])]) is not None


def test_noise_alone_is_hardly_ever_proposed() -> None:
    """The largest of m standard normals exceeds sqrt(2 ln m) in size with probability at most 1 / sqrt(pi ln m): 25 %
    for the 184 overlapping cells here, many of them of rare events. With alpha on top it is less."""
    law, random, runs = world(3), np.random.default_rng(4), 1_000
    reports = law.reports(IDENTITY)
    target = AuditTarget(gamma=0.005, alpha_abs=0.02, alpha_rel=0.0)
    proposed = 0
    for _ in range(runs):
        audits = audit(law.cells(5_000, random), reports, ALL_FAMILIES, target)
        proposed += propose_round(audits, 5_000.0, target, 30.0, 1.0) is not None
    assert proposed < 0.25 * runs
