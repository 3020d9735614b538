from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from stream_calib.calibration.grid import CENTRE_LOG_ODDS, EDGE_LOG_ODDS
from stream_calib.calibration.groups import families_up_to, family_rule, make_family, predicate_rule
from stream_calib.calibration.joint.fit import JointFit, fit_joint, fit_joints
from stream_calib.calibration.joint.problem import JointTask
from stream_calib.calibration.labelled_cells import LabelledCells
from stream_calib.calibration.maps.base_map import BaseMap
from stream_calib.calibration.maps.parts import MapParts
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.errors import ConfigurationError, FitError, LengthMismatchError, NonFiniteInputError
from tests.unit.calibration.joint.joint_worlds import (
    FAMILIES,
    IDENTITY,
    IDENTITY_LOG_ODDS,
    SIGNATURES,
    design,
    firmnesses,
    flat,
    penalised_loss,
    penalties,
    world,
)

ZERO_BIN = 201
"""The grid bin of log-odds 0 .. .05."""


def cells_of(groups: list[int], log_odds: list[float], n: list[float], k: list[float]) -> LabelledCells:
    """One signature an entry, named by its group; `log_odds` are rounded to the grid."""
    signatures = [(f"g{group}" if group >= 0 else "__other__",) for group in groups]
    grid_bin = np.searchsorted(EDGE_LOG_ODDS, np.array(log_odds), side="right")
    return LabelledCells(signatures, np.arange(len(groups)), grid_bin, np.array(n), np.array(k))


def bits(fit: JointFit) -> list[bytes]:
    return [offset.tobytes() for offset in fit.offsets] + [slope.tobytes() for slope in fit.slopes if slope is not None]


@pytest.mark.parametrize("slopes", [(), (0,), (0, 1, 2)])
def test_is_the_minimum_of_the_penalised_loss(slopes: tuple[int, ...]) -> None:
    cells = world(1)
    fit = fit_joint(cells, IDENTITY, FAMILIES, slopes=slopes, firm=[2], ridge=5.0, slope_ridge=3.0, tolerance=1e-9)
    assert (fit.firm, fit.ridge) == ((False, False, True), 5.0)
    base = IDENTITY_LOG_ODDS[cells.grid_bin]
    arguments = (design(cells, fit), base, cells.labelled, cells.positives, penalties(fit), firmnesses(fit))
    best = minimize(penalised_loss, np.zeros(len(flat(fit))), args=arguments, method="BFGS", options={"gtol": 1e-7}).x
    np.testing.assert_allclose(flat(fit), best, atol=2e-5)


def test_agrees_with_scikit_learns_penalised_logistic_regression() -> None:
    """Without a fixed part: all cells in the bin of log-odds 0, and its centre taken off by the base map."""
    cells = replace(world(2), grid_bin=np.full(400, ZERO_BIN))
    base = BaseMap(np.array([0.0]), np.array([0.5]), 1e-6, 0.0)
    fit = fit_joint(cells, base, FAMILIES, ridge=7.0, tolerance=1e-9)
    columns = design(cells, fit)
    theirs = LogisticRegression(C=1 / 7.0, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(
        np.tile(columns, (2, 1)),
        np.repeat([1, 0], len(columns)),
        sample_weight=np.concatenate([cells.positives, cells.labelled - cells.positives]),
    )
    np.testing.assert_allclose(flat(fit), theirs.coef_[0], atol=1e-5)


def test_slopes_agree_with_scikit_learns_logistic_regression() -> None:
    cells = world(3)
    base = BaseMap(np.array([0.0]), np.array([0.5]), 1e-6, 0.0)
    fit = fit_joint(cells, base, FAMILIES, slopes=[0, 1], ridge=4.0, slope_ridge=4.0, tolerance=1e-9)
    columns = design(cells, fit)
    theirs = LogisticRegression(C=1 / 4.0, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(
        np.tile(columns, (2, 1)),
        np.repeat([1, 0], len(columns)),
        sample_weight=np.concatenate([cells.positives, cells.labelled - cells.positives]),
    )
    np.testing.assert_allclose(flat(fit), theirs.coef_[0], atol=2e-5)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-6])
@pytest.mark.parametrize("slopes", [(), (0, 2)])
@pytest.mark.parametrize("firm", [(), (1, 2)])
def test_the_tolerance_is_the_distance_to_the_minimum(
    tolerance: float, slopes: tuple[int, ...], firm: tuple[int, ...]
) -> None:
    rough, fine = (
        flat(fit_joint(world(2), IDENTITY, FAMILIES, slopes=slopes, firm=firm, tolerance=t)) for t in (tolerance, 1e-11)
    )
    assert np.sqrt(((rough - fine) ** 2).sum()) <= tolerance


@given(st.integers(0, 10_000), st.floats(0.5, 100), st.floats(0.5, 100))
@settings(max_examples=25, deadline=None)
def test_every_groups_residual_is_what_the_ridge_holds_back(seed: int, ridge: float, slope_ridge: float) -> None:
    cells = world(seed, 60)
    fit = fit_joint(cells, IDENTITY, FAMILIES, slopes=[1], ridge=ridge, slope_ridge=slope_ridge, tolerance=1e-10)
    residual = cells.positives - cells.labelled * expit(fit.log_odds(cells, IDENTITY))
    np.testing.assert_allclose(design(cells, fit).T @ residual, penalties(fit) * flat(fit), atol=1e-5)


def test_a_firm_family_holds_noise_near_0_and_lets_effects_go() -> None:
    """1,000 groups of 1,000 rows with p = 1/2, one in ten off by 1/2 in log-odds: by hand for one of either kind."""
    random = np.random.default_rng(1)
    signatures = [(f"{i:04d}",) for i in range(1_000)]
    effect = np.where(np.arange(1_000) % 10 == 0, 0.5, 0.0)
    n = np.full(1_000, 1_000.0)
    k = random.binomial(1_000, expit(effect)).astype(float)
    base = BaseMap(np.array([0.0]), np.array([0.5]), 1e-6, 0.0)
    cells = LabelledCells(signatures, np.arange(1_000), np.full(1_000, ZERO_BIN), n, k)
    family = make_family(family_rule(["g"], ["g"]), signatures)
    (plain,), (firm,) = (fit_joint(cells, base, [family], firm=places).offsets for places in ((), (0,)))

    error = [np.sqrt(((offset - effect) ** 2).mean()) for offset in (plain, firm)]
    assert error[1] < 0.85 * error[0]
    for group in (0, 1):
        u = firm[group]
        held = 20 * u + 200 * u / np.sqrt(1 + (u / 0.05) ** 2)
        assert 1_000 * expit(u) + held == pytest.approx(k[group], abs=1e-3)


def test_firm_offsets_are_found_from_afar() -> None:
    """A whole Newton step from 0 would be 200 times too short or, once beyond the reach, too long."""
    cells = cells_of([0, 1], [0.01, 0.01], [1e9, 1e4], [1e9 - 1, 1e4])
    family = make_family(family_rule(["g"], ["g"]), cells.signatures)
    for start in (None, fit_joint(cells, IDENTITY, [family], ridge=1e-3)):
        (offset,) = fit_joint(cells, IDENTITY, [family], ridge=1e-3, firm=[0], start=start).offsets
        p = expit(IDENTITY_LOG_ODDS[cells.grid_bin] + offset)
        held = 1e-3 * offset * (1 + 10 / np.sqrt(1 + (offset / 0.05) ** 2))
        np.testing.assert_allclose(cells.positives - cells.labelled * p, held, atol=1e-4)


def test_the_slope_centre_is_where_the_information_is() -> None:
    cells = world(4)
    fit = fit_joint(cells, IDENTITY, FAMILIES, slopes=[0])
    x = CENTRE_LOG_ODDS[cells.grid_bin]
    p = expit(IDENTITY_LOG_ODDS[cells.grid_bin])
    weight = cells.labelled * p * (1 - p)
    assert fit.slope_centre == pytest.approx((weight * x).sum() / weight.sum(), rel=1e-9)
    assert fit_joint(cells, IDENTITY, FAMILIES).slope_centre == 0.0


def test_the_shifts_of_a_served_map_are_those_of_the_fit() -> None:
    cells = world(5)
    fit = fit_joint(cells, IDENTITY, FAMILIES, slopes=[0, 2])
    served = ServedMap(MapParts(IDENTITY, fit.shifts, slope_centre=fit.slope_centre))
    p = served.at_centres(cells.grid_bin, cells.signature, SIGNATURES)
    # A bin's centre value is the mean of its edges' values: off by at most .05^2 / 8 x max |p''| (.1) = 3e-5.
    np.testing.assert_allclose(p, expit(fit.log_odds(cells, IDENTITY)), atol=1e-4)


def test_finds_slopes_that_are_there() -> None:
    signatures = [("a",), ("b",)]
    signature, grid_bin = np.repeat([0, 1], 200), np.tile(np.arange(120, 320), 2)
    n = np.full(400, 1e5)
    own = np.where(signature == 0, 0.3, -0.2) * CENTRE_LOG_ODDS[grid_bin] + np.where(signature == 0, 0.2, -0.1)
    k = n * expit(IDENTITY_LOG_ODDS[grid_bin] + own)
    cells = LabelledCells(signatures, signature, grid_bin, n, k)
    fit = fit_joint(cells, IDENTITY, [make_family(family_rule(["g"], ["g"]), signatures)], slopes=[0])
    assert fit.slopes[0] is not None
    np.testing.assert_allclose(fit.slopes[0], [0.3, -0.2], atol=1e-4)
    np.testing.assert_allclose(fit.offsets[0] - fit.slopes[0] * fit.slope_centre, [0.2, -0.1], atol=1e-4)


@pytest.mark.parametrize("rows", [1e2, 1e4, 1e6, 1e9])
def test_a_family_that_divides_another_shares_with_it_by_the_ridge_however_many_rows_there_are(rows: float) -> None:
    """The data say nothing of how a group and its parts share a shift; the ridge alone does, and is not outvoted."""
    signatures = [(f"p{i // 3}", f"{i}") for i in range(6)]
    parent, part, again = (
        make_family(family_rule(names, ["p", "q"]), signatures) for names in (["p"], ["p", "q"], ["p"])
    )
    shift = np.array([0.4, 0.1, 0.3, -0.5, -0.2, 0.2])
    n, base = np.full(6, rows), np.full(6, IDENTITY_LOG_ODDS[181])
    cells = LabelledCells(signatures, np.arange(6), np.full(6, 181), n, n * expit(base + shift))
    whole, parts, twice = fit_joint(cells, IDENTITY, [parent, part, again]).offsets
    np.testing.assert_allclose(whole, twice, atol=1e-6)
    np.testing.assert_allclose(np.bincount(parent.group_of, parts), whole, atol=1e-5)
    np.testing.assert_allclose(whole[parent.group_of] + parts + twice[parent.group_of], shift, atol=100 / rows + 1e-6)


def test_a_shift_from_one_end_of_the_scale_to_the_other_is_found() -> None:
    """A whole Newton step from there would be thousands of units too far."""
    cells = cells_of([0, 1], [-9.99, 9.96], [1e9, 10.0], [9e8, 0.0])
    family = make_family(family_rule(["g"], ["g"]), cells.signatures)
    first, second = fit_joint(cells, IDENTITY, [family, family], ridge=1e-3).offsets
    base = IDENTITY_LOG_ODDS[cells.grid_bin]
    assert first[0] + second[0] == pytest.approx(np.log(9) - base[0], abs=1e-4)
    assert first[1] == second[1] == pytest.approx(10 * expit(base[1] + 2 * first[1]) / -1e-3, rel=1e-6)


def test_steep_slopes_are_found() -> None:
    """Labels that the wrong end of the scale has: the way there is far, and every step a gain."""
    cells = cells_of([0, 0], [-9.99, 9.96], [1e6, 1e6], [1e6, 0.0])
    fit = fit_joint(cells, IDENTITY, [make_family(family_rule(["g"], ["g"]), cells.signatures)], slopes=[0], ridge=1.0)
    p = expit(fit.log_odds(cells, IDENTITY))
    assert p[0] > 0.999
    assert p[1] < 0.001


def test_a_fit_over_other_signatures_shifts_the_groups_that_it_has_seen() -> None:
    fit = fit_joint(world(3), IDENTITY, FAMILIES, slopes=[0])
    others = [("a9", "b1"), *SIGNATURES[4:8][::-1]]
    moved = fit.over([make_family(family.rule, others) for family in FAMILIES])
    cells = world(4)
    seen = LabelledCells(others, 1 + cells.signature % 4, cells.grid_bin, cells.labelled, cells.positives)
    same = LabelledCells(SIGNATURES, 7 - cells.signature % 4, cells.grid_bin, cells.labelled, cells.positives)
    np.testing.assert_array_equal(moved.log_odds(seen, IDENTITY), fit.log_odds(same, IDENTITY))
    unseen = LabelledCells(others, np.zeros_like(cells.signature), cells.grid_bin, cells.labelled, cells.positives)
    of_b1 = fit.offsets[1][FAMILIES[1].keys.index(("b1",))]
    expected = IDENTITY.log_odds_at(CENTRE_LOG_ODDS)[cells.grid_bin] + of_b1
    np.testing.assert_allclose(moved.log_odds(unseen, IDENTITY), expected, atol=1e-12)


def test_groups_without_rows_stay_at_0() -> None:
    signatures = [("g0",), ("g1",), ("g2",)]
    cells = LabelledCells(
        signatures, np.array([0, 1, 2]), np.full(3, ZERO_BIN), np.array([10.0, 10.0, 0.0]), np.array([5.0, 9.0, 0.0])
    )
    fit = fit_joint(cells, IDENTITY, [make_family(family_rule(["g"], ["g"]), signatures)], slopes=[0])
    assert fit.offsets[0][2] == 0.0
    assert fit.slopes[0] is not None
    assert fit.slopes[0][2] == 0.0
    assert fit.offsets[0][1] > 0.1


def test_signatures_in_no_group_keep_offset_0() -> None:
    cells = cells_of([0, 1, -1], [0.01, 0.01, 0.01], [1000.0] * 3, [500.0, 900.0, 900.0])
    rules = [family_rule(["g"], ["g"]), predicate_rule("rest", {"g": ["__other__"]}, ["g"])]
    both = fit_joint(cells, IDENTITY, [make_family(rule, cells.signatures) for rule in rules], ridge=1.0)
    alone = fit_joint(cells.rows(np.array([2])), IDENTITY, [make_family(rules[1], cells.signatures)], ridge=1.0)
    np.testing.assert_allclose(both.offsets[1], alone.offsets[0], atol=1e-6)
    p = expit(both.log_odds(cells, IDENTITY))
    np.testing.assert_allclose(1000 * p[:2] + both.offsets[0], [500.0, 900.0], atol=1e-4)


@pytest.mark.parametrize("slopes", [(), (0, 2)])
def test_neither_the_order_of_cells_nor_that_of_families_changes_a_bit(slopes: tuple[int, ...]) -> None:
    cells = world(3, decayed=False)
    once = fit_joint(cells, IDENTITY, FAMILIES, slopes=slopes)
    assert bits(fit_joint(cells, IDENTITY, FAMILIES, slopes=slopes)) == bits(once)
    order = np.random.default_rng(0).permutation(len(cells.signature))
    assert bits(fit_joint(cells.rows(order), IDENTITY, FAMILIES, slopes=slopes)) == bits(once)
    turned = fit_joint(cells, IDENTITY, FAMILIES[::-1], slopes=[2 - place for place in slopes])
    assert [o.tobytes() for o in turned.offsets[::-1]] == [o.tobytes() for o in once.offsets]
    for a, b in zip(turned.slopes[::-1], once.slopes, strict=True):
        assert (a is None and b is None) or (a is not None and b is not None and a.tobytes() == b.tobytes())


def test_nor_does_the_order_of_signatures() -> None:
    cells = world(4, decayed=False)
    order = np.random.default_rng(1).permutation(len(SIGNATURES))
    signatures = [SIGNATURES[i] for i in order.tolist()]
    moved = replace(cells, signatures=signatures, signature=np.argsort(order)[cells.signature])
    families = [make_family(rule, signatures) for rule in families_up_to(2, ["a", "b"])]
    assert bits(fit_joint(moved, IDENTITY, families, slopes=[0])) == bits(
        fit_joint(cells, IDENTITY, FAMILIES, slopes=[0])
    )


def test_splitting_a_cell_changes_nothing() -> None:
    cells = world(5)
    half = replace(cells, labelled=cells.labelled / 2, positives=cells.positives / 2)
    twice = half.rows(np.tile(np.arange(400), 2))
    assert bits(fit_joint(twice, IDENTITY, FAMILIES, slopes=[0])) == bits(
        fit_joint(cells, IDENTITY, FAMILIES, slopes=[0])
    )


def test_more_than_65536_runs_are_kept_apart() -> None:
    n = 70_000
    signatures = [(f"{i:05d}",) for i in range(n)]
    positives = np.zeros(n)
    positives[::2] = 100.0
    order = np.random.default_rng(2).permutation(n)
    cells = LabelledCells(signatures, np.arange(n), np.full(n, ZERO_BIN), np.full(n, 100.0), positives).rows(order)
    (offset,) = fit_joint(cells, IDENTITY, [make_family(family_rule(["g"], ["g"]), signatures)]).offsets
    assert (offset[::2] > 0.5).all()
    assert (offset[1::2] < -0.5).all()


@pytest.mark.parametrize("same", [True, False])
def test_a_start_changes_the_result_within_the_tolerance_only(same: bool) -> None:
    before = fit_joint(world(6), IDENTITY, FAMILIES if same else FAMILIES[:2], slopes=[0])
    cells = world(6 if same else 7)
    cold = fit_joint(cells, IDENTITY, FAMILIES, slopes=[0, 1])
    warm = fit_joint(cells, IDENTITY, FAMILIES, slopes=[0, 1], start=before)
    assert np.sqrt(((flat(warm) - flat(cold)) ** 2).sum()) <= 2e-6


def test_results_have_12_significant_digits() -> None:
    fit = fit_joint(world(4), IDENTITY, FAMILIES, slopes=[0])
    assert all(v == float(f"{v:.12g}") for v in [*flat(fit).tolist(), fit.slope_centre])


def test_no_cells_no_families_one_group() -> None:
    cells = world(8)
    nothing = fit_joint(cells.rows(np.zeros(400, dtype=bool)), IDENTITY, FAMILIES, slopes=[1])
    assert not flat(nothing).any()
    assert nothing.slope_centre == 0.0
    assert fit_joint(cells, IDENTITY, []).shifts == ()
    rule = predicate_rule("everything", {"b": ["b0", "b1", "b2"]}, ["a", "b"])
    (offset,) = fit_joint(cells, IDENTITY, [make_family(rule, SIGNATURES)]).offsets
    assert offset.shape == (1,)


def _broken(column: str, value: float) -> LabelledCells:
    cells = world(9)
    changed: dict[str, Any] = {column: getattr(cells, column).copy()}
    changed[column][3] = value
    return replace(cells, **changed)


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(NonFiniteInputError, match="NaN or infinite"):
        fit_joint(_broken("labelled", np.nan), IDENTITY, FAMILIES)
    with pytest.raises(NonFiniteInputError, match="NaN or infinite"):
        fit_joint(_broken("positives", np.inf), IDENTITY, FAMILIES)
    with pytest.raises(FitError, match="positives below 0 or above its labelled rows"):
        fit_joint(_broken("positives", 1e6), IDENTITY, FAMILIES)
    with pytest.raises(FitError, match="positives below 0"):
        fit_joint(_broken("positives", -0.1), IDENTITY, FAMILIES)


def test_parameters_that_make_no_sense_are_refused() -> None:
    cells = world(9)
    for name in ("ridge", "slope_ridge", "tolerance"):
        for value in (0.0, -1.0, np.nan, np.inf):
            parameter: dict[str, Any] = {name: value}
            with pytest.raises(ConfigurationError, match=f"{name} = {value}"):
                fit_joint(cells, IDENTITY, FAMILIES, **parameter)
    with pytest.raises(ConfigurationError, match=r"slopes of families at \[3\]; there are 3"):
        fit_joint(cells, IDENTITY, FAMILIES, slopes=[0, 3])
    with pytest.raises(ConfigurationError, match=r"firm of families at \[-1\]; there are 3"):
        fit_joint(cells, IDENTITY, FAMILIES, firm=[-1])


def test_families_of_other_signatures_are_refused() -> None:
    others = make_family(family_rule(["a"], ["a", "b"]), SIGNATURES[:4])
    with pytest.raises(LengthMismatchError, match="family a is of 4 signatures, the cells of 15"):
        fit_joint(world(9), IDENTITY, [others])
    fit = fit_joint(world(9), IDENTITY, FAMILIES)
    with pytest.raises(LengthMismatchError, match="family a is of 15 signatures, the cells of 4"):
        fit.log_odds(replace(world(9), signatures=SIGNATURES[:4]), IDENTITY)


def test_a_minimum_that_is_not_found_is_an_error_not_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_calib.calibration.joint.minimum.MOST_STEPS", 2)
    with pytest.raises(FitError, match=r"after 2 Newton steps; raise the ridge 20"):
        fit_joint(world(6), IDENTITY, FAMILIES)


def test_fits_side_by_side_are_those_alone() -> None:
    """Of other families, slopes, firm families and base maps; from nothing and from a fit."""
    cells, limits = world(2), {"ridge": 4.0, "slope_ridge": 9.0, "tolerance": 1e-10}
    steep = replace(IDENTITY, log_odds=1.5 * np.asarray(IDENTITY.log_odds))
    tasks = [
        JointTask(IDENTITY, (0, 1, 2)),
        JointTask(IDENTITY, (0, 2)),
        JointTask(steep, (0, 1, 2), slopes=(1,)),
        JointTask(IDENTITY, (1, 2), slopes=(1, 2), firm=(2,)),
    ]
    for start in (None, fit_joint(cells, IDENTITY, FAMILIES)):
        for task, fit in zip(tasks, fit_joints(cells, FAMILIES, tasks, start=start, **limits), strict=True):
            assert isinstance(fit, JointFit)
            own = [FAMILIES[place] for place in task.places]
            slopes, firm = ([list(task.places).index(place) for place in each] for each in (task.slopes, task.firm))
            alone = fit_joint(cells, task.base, own, slopes=slopes, firm=firm, start=start, **limits)
            assert (fit.families, fit.firm) == (alone.families, alone.firm)
            assert [slope is None for slope in fit.slopes] == [slope is None for slope in alone.slopes]
            assert fit.slope_centre == pytest.approx(alone.slope_centre, rel=1e-9, abs=1e-12)
            np.testing.assert_allclose(flat(fit), flat(alone), atol=1e-9)


def test_of_fits_side_by_side_one_that_is_not_found_is_an_error_and_the_others_are_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stream_calib.calibration.joint.minimum.MOST_STEPS", 2)
    cells = world(6)
    start = fit_joint(cells.rows(np.zeros(len(cells.labelled), dtype=bool)), IDENTITY, FAMILIES)
    tasks = [JointTask(IDENTITY, ()), JointTask(IDENTITY, (0, 1, 2))]
    nothing, refused = fit_joints(cells, FAMILIES, tasks, ridge=20.0, slope_ridge=20.0, tolerance=1e-6, start=start)
    assert isinstance(nothing, JointFit)
    assert nothing.offsets == ()
    assert isinstance(refused, FitError)
