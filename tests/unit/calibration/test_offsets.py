import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from stream_calib.calibration.offsets import fit_level, fit_offsets
from stream_calib.errors import FitError

Floats = NDArray[np.float64]
Groups = NDArray[np.intp]


def world(seed: int, cells: int = 400) -> tuple[Floats, Floats, Floats, list[Groups], list[int]]:
    """Cells of two overlapping families and their intersection, with decayed (fractional) counts."""
    rng = np.random.default_rng(seed)
    base = rng.normal(-1.5, 1.0, cells)
    first, second = rng.integers(0, 5, cells), rng.integers(0, 3, cells)
    families = [first, second, first * 3 + second]
    truth = base + rng.normal(0, 0.5, 5)[first] + rng.normal(0, 0.3, 3)[second]
    n = rng.integers(1, 60, cells)
    decay = rng.uniform(0.1, 1.0, cells)
    return base, n * decay, rng.binomial(n, expit(truth)) * decay, families, [5, 3, 15]


def objective(flat: Floats, base: Floats, n: Floats, k: Floats, families: list[Groups], sizes: list[int]) -> float:
    offsets = np.split(flat, np.cumsum(sizes)[:-1])
    shifted = base + np.sum([o[f] for o, f in zip(offsets, families, strict=True)], axis=0)
    return float((n * np.logaddexp(0, shifted) - k * shifted).sum() + 10 * (flat**2).sum())


def test_is_the_optimum_of_the_penalised_loss() -> None:
    data = world(1)
    best = minimize(objective, np.zeros(23), args=data, method="BFGS", options={"gtol": 1e-6}).x
    fitted = np.concatenate(fit_offsets(*data, ridge=20.0, tolerance=1e-9))
    np.testing.assert_allclose(fitted, best, atol=1e-5)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-6])
def test_the_tolerance_is_the_distance_to_the_optimum(tolerance: float) -> None:
    data = world(2)
    rough, fine = (np.concatenate(fit_offsets(*data, tolerance=t)) for t in (tolerance, 1e-11))
    assert np.sqrt(((rough - fine) ** 2).sum()) <= tolerance


@pytest.mark.parametrize("rows", [1e2, 1e4, 1e6, 1e9])
def test_a_family_that_divides_another_shares_with_it_by_the_ridge_however_many_rows_there_are(rows: float) -> None:
    """The data say nothing of how a group and its parts share a shift; the ridge alone does, and is not outvoted."""
    parent, part = np.repeat([0, 1], 3), np.arange(6)
    shift = np.array([0.4, 0.1, 0.3, -0.5, -0.2, 0.2])
    base, n = np.full(6, -1.0), np.full(6, rows)
    whole, parts, again = fit_offsets(base, n, n * expit(base + shift), [parent, part, parent], [2, 6, 2])
    np.testing.assert_allclose(whole, again, atol=1e-6)
    np.testing.assert_allclose(np.bincount(parent, parts), whole, atol=1e-5)
    np.testing.assert_allclose(whole[parent] + parts + again[parent], shift, atol=100 / rows + 1e-6)


@given(st.integers(0, 10_000), st.floats(0.5, 100))
@settings(max_examples=25)
def test_every_groups_residual_is_what_the_ridge_holds_back(seed: int, ridge: float) -> None:
    base, n, k, families, sizes = world(seed, 60)
    offsets = fit_offsets(base, n, k, families, sizes, ridge=ridge, tolerance=1e-10)
    p = expit(base + np.sum([o[f] for o, f in zip(offsets, families, strict=True)], axis=0))
    for offset, family, size in zip(offsets, families, sizes, strict=True):
        residual = np.bincount(family, k - n * p, size)
        np.testing.assert_allclose(residual, ridge * offset, atol=1e-5)


def test_an_empty_group_and_one_without_residual_stay_at_0() -> None:
    base = np.zeros(2)
    (offset,) = fit_offsets(base, np.array([10.0, 10.0]), np.array([5.0, 9.0]), [np.array([0, 1])], [3])
    assert offset[0] == 0.0
    assert offset[1] > 0.1
    assert offset[2] == 0.0


def test_cells_in_no_group_keep_offset_0() -> None:
    base, n, k = np.zeros(3), np.full(3, 1000.0), np.array([500.0, 900.0, 900.0])
    first, second = fit_offsets(base, n, k, [np.array([0, 1, -1]), np.array([-1, -1, 0])], [2, 1], ridge=1.0)
    alone = fit_offsets(base[2:], n[2:], k[2:], [np.array([0])], [1], ridge=1.0)[0]
    np.testing.assert_allclose(first, [0.0, alone[0]], atol=1e-6)
    np.testing.assert_allclose(second, alone, atol=1e-6)


def test_a_shift_from_one_end_of_the_scale_to_the_other_is_found() -> None:
    """A whole Newton step from there would be 10^5 too far."""
    base, n = np.array([-13.0, 13.0]), np.array([1e9, 10.0])
    first, second = fit_offsets(base, n, np.array([9e8, 0.0]), [np.array([0, 1])] * 2, [2, 2], ridge=1e-3)
    assert first[0] + second[0] == pytest.approx(13 + np.log(9), abs=1e-4)
    assert first[1] == second[1] == pytest.approx((n[1] * expit(base[1] + 2 * first[1])) / -1e-3, rel=1e-6)


def test_the_order_of_cells_changes_nothing_but_the_last_digits_and_a_repeat_nothing() -> None:
    base, n, k, families, sizes = world(3)
    order = np.random.default_rng(0).permutation(len(base))
    once = fit_offsets(base, n, k, families, sizes)
    again = fit_offsets(base, n, k, families, sizes)
    shuffled = fit_offsets(base[order], n[order], k[order], [f[order] for f in families], sizes)
    assert [o.tobytes() for o in once] == [o.tobytes() for o in again]
    for a, b in zip(once, shuffled, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


def test_results_have_12_significant_digits() -> None:
    for offset in fit_offsets(*world(4)):
        assert all(v == float(f"{v:.12g}") for v in offset.tolist())


def test_splitting_a_cell_changes_nothing() -> None:
    base, n, k, families, sizes = world(5)
    whole = fit_offsets(base, n, k, families, sizes)
    parts = fit_offsets(
        np.tile(base, 2),
        np.concatenate([n * 0.25, n * 0.75]),
        np.concatenate([k * 0.25, k * 0.75]),
        [np.tile(f, 2) for f in families],
        sizes,
    )
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


def test_too_few_rounds_are_an_error_not_a_result() -> None:
    with pytest.raises(FitError, match="after 2 rounds"):
        fit_offsets(*world(6), max_rounds=2)


def test_no_cells_and_no_families() -> None:
    empty = np.empty(0)
    assert [o.tolist() for o in fit_offsets(empty, empty, empty, [np.empty(0, np.intp)], [2])] == [[0.0, 0.0]]
    assert fit_offsets(np.zeros(2), np.ones(2), np.ones(2), [], []) == []
    assert fit_level(empty, empty, empty) == 0.0


def test_level_is_the_one_common_shift_shrunk_by_its_prior() -> None:
    log_odds, n = np.array([-2.0, 0.0, 1.0]), np.array([300.0, 200.5, 100.0])
    k = n * expit(log_odds + 0.4)
    assert fit_level(log_odds, n, k, prior=1e-6) == pytest.approx(0.4, abs=1e-6)
    level = fit_level(log_odds, n, k, prior=300.0)
    assert 0 < level < 0.4
    assert (k - n * expit(log_odds + level)).sum() == pytest.approx(300.0 * level, abs=1e-6)
