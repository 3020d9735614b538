from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit

from stream_calib.calibration.grid import CENTRE_LOG_ODDS
from stream_calib.calibration.groups import make_family, predicate_rule
from stream_calib.calibration.joint import covariance as joint_covariance
from stream_calib.calibration.joint.covariance import inverse_by_sweeps
from stream_calib.calibration.joint.effects import effects_text, group_effects
from stream_calib.calibration.joint.fit import JointFit, fit_joint
from stream_calib.calibration.labelled_cells import LabelledCells
from tests.unit.calibration.joint.joint_worlds import (
    FAMILIES,
    IDENTITY,
    IDENTITY_LOG_ODDS,
    SIGNATURES,
    Floats,
    design,
    firmnesses,
    flat,
    penalised_loss,
    penalties,
    world,
)


def hessian(cells: LabelledCells, fit: JointFit) -> Floats:
    """Of the penalised loss, by central differences of the loss itself."""
    parameters, step = flat(fit), 1e-3
    columns, base = design(cells, fit), IDENTITY_LOG_ODDS[cells.grid_bin]

    def loss(moved: Floats) -> float:
        return penalised_loss(moved, columns, base, cells.labelled, cells.positives, penalties(fit), firmnesses(fit))

    unit = np.eye(len(parameters)) * step
    return np.array(
        [
            [
                (
                    loss(parameters + a + b)
                    - loss(parameters + a - b)
                    - loss(parameters - a + b)
                    + loss(parameters - a - b)
                )
                / (4 * step**2)
                for b in unit
            ]
            for a in unit
        ]
    )


@pytest.mark.parametrize("slopes", [(), (0,), (2,), (0, 1)])
def test_errors_are_those_of_the_inverse_of_a_numerical_hessian(slopes: tuple[int, ...]) -> None:
    cells = world(1)
    fit = fit_joint(cells, IDENTITY, FAMILIES, slopes=slopes, firm=[1], slope_ridge=5.0, tolerance=1e-9)
    variance = np.linalg.inv(hessian(cells, fit)).diagonal()
    effects = group_effects(fit, cells, IDENTITY)
    n_offsets = sum(len(offset) for offset in fit.offsets)
    # Differences of a loss of about 10^4, divided by step^2, hold three digits or four.
    np.testing.assert_allclose([e.offset_error for e in effects], np.sqrt(variance[:n_offsets]), rtol=1e-3)
    with_slope = [e.slope_error for place in slopes for e in effects if e.family == FAMILIES[place].rule.name]
    np.testing.assert_allclose(with_slope, np.sqrt(variance[n_offsets:]), rtol=1e-3)
    assert all(
        e.slope == e.slope_error == 0.0 for e in effects if e.family not in {FAMILIES[p].rule.name for p in slopes}
    )


def exact_covariance(cells: LabelledCells, fit: JointFit) -> Floats:
    columns = design(cells, fit)
    p = expit(fit.log_odds(cells, IDENTITY))
    weight = cells.labelled * p * (1 - p)
    return np.asarray(np.linalg.inv((columns * weight[:, None]).T @ columns + np.diag(penalties(fit))))


@given(st.integers(0, 10_000), st.sets(st.integers(0, 2)))
@settings(max_examples=20, deadline=None)
def test_the_error_of_the_shift_at_the_mean_is_that_of_offset_and_slope_together(seed: int, slopes: set[int]) -> None:
    cells = world(seed, 200)
    fit = fit_joint(cells, IDENTITY, FAMILIES, slopes=slopes)
    covariance = exact_covariance(cells, fit)
    first_slope = sum(len(offset) for offset in fit.offsets)
    by_name = {(e.family, e.key): e for e in group_effects(fit, cells, IDENTITY)}
    row = 0
    for place, family in enumerate(fit.families):
        for group, key in enumerate(family.keys):
            inside = family.group_of[cells.signature] == group
            if inside.any():
                own = np.zeros(len(covariance))
                own[row] = 1.0
                if place in slopes:
                    before = sum(len(fit.families[p].keys) for p in sorted(slopes) if p < place)
                    mean = np.average(CENTRE_LOG_ODDS[cells.grid_bin[inside]], weights=cells.labelled[inside])
                    own[first_slope + before + group] = mean - fit.slope_centre
                effect = by_name[family.rule.name, key]
                assert effect.shift == pytest.approx(float((own * flat(fit)).sum()), abs=1e-9)
                assert effect.shift_error == pytest.approx(float(np.sqrt(own @ covariance @ own)), rel=1e-8)
            row += 1


def test_families_beyond_the_core_are_held_at_their_fitted_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for 5 parameters the core is b (3): a is judged beside b alone, b beside the largest family."""
    monkeypatch.setattr(joint_covariance, "MOST_CORE_PARAMETERS", 5)
    cells = world(2)
    fit = fit_joint(cells, IDENTITY, FAMILIES)
    precision = np.linalg.inv(exact_covariance(cells, fit))
    a, b, ab = np.arange(5), np.arange(5, 8), np.arange(8, 23)
    held = {
        "a": np.linalg.inv(precision[np.ix_([*a, *b], [*a, *b])]).diagonal()[:5],
        "b": np.linalg.inv(precision[np.ix_([*b, *ab], [*b, *ab])]).diagonal()[:3],
        "a & b": np.linalg.inv(precision[np.ix_([*b, *ab], [*b, *ab])]).diagonal()[3:],
    }
    effects = group_effects(fit, cells, IDENTITY)
    for family, variance in held.items():
        found = [e.offset_error for e in effects if e.family == family]
        np.testing.assert_allclose(found, np.sqrt(variance), rtol=1e-9)
    exact = np.sqrt(exact_covariance(cells, fit).diagonal())
    assert all(e.offset_error <= error for e, error in zip(effects, exact, strict=True))


def test_of_one_group_everything_follows_by_hand() -> None:
    """100 rows, 70 positives, all at the base probability q: u = offset, mean p = expit(logit q + u)."""
    rule = predicate_rule("everything", {"a": [s[0] for s in SIGNATURES]}, ["a", "b"])
    cells = LabelledCells(SIGNATURES, np.array([0]), np.array([201]), np.array([100.0]), np.array([70.0]))
    fit = fit_joint(cells, IDENTITY, [make_family(rule, SIGNATURES)], ridge=20.0)
    (effect,) = group_effects(fit, cells, IDENTITY)
    base, u = float(IDENTITY_LOG_ODDS[201]), fit.offsets[0][0]
    p = expit(base + u)
    assert 100 * p + 20 * u == pytest.approx(70.0, abs=1e-4)
    assert (effect.family, effect.key, effect.name) == ("everything", ("everything",), "everything")
    assert effect.labelled == 100.0
    assert effect.offset == effect.shift == u
    assert effect.offset_error == pytest.approx(1 / np.sqrt(100 * p * (1 - p) + 20))
    assert effect.mean_probability == pytest.approx(p)
    assert effect.change == pytest.approx(p - expit(base))
    assert effect.change_error == pytest.approx(expit(base) * expit(-base) * effect.offset_error)


def test_the_change_is_that_of_the_groups_mean() -> None:
    cells = world(3)
    fit = fit_joint(cells, IDENTITY, FAMILIES, slopes=[0])
    p = expit(fit.log_odds(cells, IDENTITY))
    for effect in group_effects(fit, cells, IDENTITY):
        family = next(f for f in FAMILIES if f.rule.name == effect.family)
        inside = family.group_of[cells.signature] == family.keys.index(effect.key)
        mean = np.average(p[inside], weights=cells.labelled[inside])
        assert effect.labelled == pytest.approx(cells.labelled[inside].sum())
        assert effect.mean_probability == pytest.approx(mean)
        assert effect.change == pytest.approx(mean - expit(logit(mean) - effect.shift))


def test_errors_cover_the_truth_as_often_as_they_say() -> None:
    """Offsets drawn from the ridge's prior, 2,000 groups: within 1.645 errors 90 % of the time, +- 4 binomial sd."""
    random = np.random.default_rng(5)
    n_groups, ridge = 2000, 4.0
    signatures = [(f"{i:04d}", "b") for i in range(n_groups)]
    truth = random.normal(0, 1 / np.sqrt(ridge), n_groups)
    n = random.integers(20, 200, n_groups)
    k = random.binomial(n, expit(IDENTITY_LOG_ODDS[181] + truth))
    cells = LabelledCells(
        signatures, np.arange(n_groups), np.full(n_groups, 181), n.astype(np.float64), k.astype(np.float64)
    )
    family = make_family(FAMILIES[0].rule, signatures)
    fit = fit_joint(cells, IDENTITY, [family], ridge=ridge)
    effects = group_effects(fit, cells, IDENTITY)
    covered = np.mean(
        [abs(e.offset - t) <= 1.645 * e.offset_error for e, t in zip(effects, truth.tolist(), strict=True)]
    )
    assert abs(covered - 0.9) <= 4 * np.sqrt(0.9 * 0.1 / n_groups)


def test_groups_without_labelled_rows_have_no_line() -> None:
    cells = world(4)
    inside = cells.signature != 3
    fit = fit_joint(cells.rows(inside), IDENTITY, FAMILIES)
    names = {e.name for e in group_effects(fit, cells.rows(inside), IDENTITY)}
    assert "a=a1 & b=b0" not in names
    assert "a=a1 & b=b1" in names
    none = cells.rows(np.zeros(len(inside), dtype=bool))
    assert group_effects(fit_joint(none, IDENTITY, FAMILIES), none, IDENTITY) == ()
    assert group_effects(fit_joint(cells, IDENTITY, []), cells, IDENTITY) == ()


def test_the_order_of_families_changes_no_bit() -> None:
    cells = world(5, decayed=False)
    once = group_effects(fit_joint(cells, IDENTITY, FAMILIES, slopes=[0]), cells, IDENTITY)
    turned = group_effects(fit_joint(cells, IDENTITY, FAMILIES[::-1], slopes=[2]), cells, IDENTITY)
    assert {(e.family, e.key): e for e in once} == {(e.family, e.key): e for e in turned}


def test_text_has_a_line_a_group() -> None:
    cells = world(6)
    effects = group_effects(fit_joint(cells, IDENTITY, FAMILIES, slopes=[0]), cells, IDENTITY)
    effect = replace(
        effects[0],
        labelled=1234.4,
        mean_probability=0.25,
        offset=0.5,
        offset_error=0.12,
        slope=-0.25,
        slope_error=0.05,
        change=0.031,
        change_error=0.004,
    )
    lines = effects_text([effect, *effects[1:]]).splitlines()
    assert len(lines) == 1 + 23
    assert lines[0].split() == ["group", "labelled", "mean", "p", "offset", "slope", "change,", "points"]
    assert " ".join(lines[1].split()) == "a=a0 1234 0.2500 +0.500 +- 0.120 -0.250 +- 0.050 +3.10 +- 0.40"
    assert " - " in lines[6]
    assert effects_text([]).startswith("group")


@given(st.integers(1, 12), st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_sweeps_invert(n: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    root = random.normal(size=(n, n))
    matrix = root @ root.T + np.eye(n)
    np.testing.assert_allclose(inverse_by_sweeps(matrix) @ matrix, np.eye(n), atol=1e-9)
