from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stream_calib.calibration.grid import N_BINS, locate
from stream_calib.drift.psi import INSUFFICIENT, KNOWN, UNDEFINED, PsiLook, PsiReference, ReferenceGroup, look
from stream_calib.drift.psi_reference import quantile_bins, reference_group


def histogram(counts: dict[int, float]) -> NDArray[np.float64]:
    made = np.zeros(N_BINS)
    for grid_bin, n in counts.items():
        made[grid_bin] = n
    return made


def of_scores(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.bincount(locate(scores)[0], minlength=N_BINS).astype(np.float64)


def reference_of(fit: NDArray[np.float64], effect: float | None = 1.0, bins: int = 10) -> PsiReference:
    ends = quantile_bins(fit, bins)
    starts = np.concatenate([[0], np.asarray(ends[:-1], dtype=np.int64) + 1])
    rows = tuple(np.add.reduceat(fit, starts).tolist())
    return PsiReference([ReferenceGroup(None, None, tuple(ends), rows, effect)], 1.0)


def look_at(reference: PsiReference, current: NDArray[np.float64], tail: float = 1e-4, psi0: float = 0.1) -> PsiLook:
    counts = np.zeros(reference.rows.shape, dtype=np.int64)
    np.add.at(counts[0], reference.bin_of[0], current.astype(np.int64))
    return look(reference, counts, psi0, tail)


def test_an_empty_reference_bin_is_merged_and_psi_is_finite() -> None:
    reference = reference_of(histogram({100: 500, 200: 500}))
    assert reference.n_bins[0] == 2
    result = look_at(reference, histogram({200: 500, 300: 500}))
    assert result.psi[0] == pytest.approx(3.80, abs=0.01)
    assert result.alarm[0]


def test_a_rare_new_bin_raises_no_alarm() -> None:
    result = look_at(reference_of(histogram({100: 9990, 200: 10})), histogram({100: 9980, 200: 10, 300: 10}))
    assert result.status[0] == UNDEFINED
    assert not result.alarm[0]
    assert np.isnan(result.psi[0])


def test_scores_outside_the_reference_range_count() -> None:
    fit = of_scores(np.linspace(0.2, 0.8, 1000))
    current = of_scores(np.concatenate([np.linspace(0.2, 0.8, 500), np.full(500, 0.95)]))
    reference = reference_of(fit)
    result = look_at(reference, current)
    assert result.rows[0] == 1000
    # 1.08 with exact tenths; bins are whole grid bins, so the shares are not exact tenths.
    assert result.psi[0] == pytest.approx(1.08, abs=0.06)
    assert result.alarm[0]


def test_small_samples_of_the_reference_itself_do_not_alarm_and_a_true_shift_does() -> None:
    rng = np.random.default_rng(15)
    reference = reference_of(of_scores(rng.random(100_000)))
    looks = [look_at(reference, of_scores(rng.random(40)), tail=0.05) for _ in range(200)]
    assert np.mean([r.psi[0] > 0.1 for r in looks]) > 0.8  # what a fixed limit would do
    assert sum(bool(r.alarm[0]) for r in looks) <= 10
    shifted = look_at(reference, of_scores(rng.beta(2, 1, 5_000)), tail=1e-5)
    assert shifted.alarm[0]


def test_noise_floor_is_what_psi_is_without_change() -> None:
    rng = np.random.default_rng(3)
    population = rng.random(20_000)
    reference = reference_of(of_scores(population))
    looks = [look_at(reference, of_scores(rng.random(2_000))) for _ in range(200)]
    assert np.mean([r.psi[0] for r in looks]) == pytest.approx(looks[0].floor[0], rel=0.1)
    assert abs(np.mean([r.excess[0] for r in looks])) < 0.1 * looks[0].floor[0]


@pytest.mark.parametrize("shift", [0.0, 0.25])
def test_alarms_on_the_border_keep_the_tail_probability(shift: float) -> None:
    """Where the truth is exactly psi0 (here 0 or a real shift), about `tail` of the looks alarm, never many more."""
    rng = np.random.default_rng(8)
    reference = reference_of(of_scores(rng.random(200_000)))
    truth = look_at(reference, of_scores(rng.random(400_000) ** (1 + shift)))
    psi0 = max(float(truth.excess[0]), 1e-9)
    alarms = [
        bool(look_at(reference, of_scores(rng.random(500) ** (1 + shift)), tail=0.02, psi0=psi0).alarm[0])
        for _ in range(600)
    ]
    assert sum(alarms) <= 30


def test_design_effect_widens_floor_and_tail() -> None:
    rng = np.random.default_rng(4)
    fit, current = of_scores(rng.random(50_000)), of_scores(rng.random(1_000) ** 2)
    plain, wide = look_at(reference_of(fit), current), look_at(reference_of(fit, effect=40.0), current)
    assert plain.alarm[0]
    assert not wide.alarm[0]
    assert wide.floor[0] == pytest.approx(40 * plain.floor[0])
    assert wide.psi[0] == plain.psi[0]


def test_no_rows_and_an_unknown_design_effect_are_insufficient() -> None:
    fit = of_scores(np.linspace(0.1, 0.9, 1000))
    for result in (look_at(reference_of(fit), np.zeros(N_BINS)), look_at(reference_of(fit, effect=None), fit)):
        assert result.status[0] == INSUFFICIENT
        assert not result.alarm[0]
        assert not result.calm[0]


def test_no_new_rows_is_no_look() -> None:
    result = look_at(reference_of(histogram({100: 500, 200: 500})), histogram({200: 1000}), tail=0.0)
    assert result.status[0] == KNOWN
    assert not result.alarm[0]


def test_counts_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        look(reference_of(histogram({100: 5, 200: 5})), np.zeros((1, 7), dtype=np.int64), 0.1, 0.1)


histograms = st.dictionaries(st.integers(0, N_BINS - 1), st.integers(1, 10_000), min_size=1, max_size=60)


@settings(max_examples=60, deadline=None)
@given(histograms, st.integers(2, 20))
def test_bins_cover_the_grid_and_none_is_too_light(counts: dict[int, float], bins: int) -> None:
    fit = histogram(counts)
    ends = quantile_bins(fit, bins)
    assert ends == sorted(set(ends))
    assert ends[-1] == N_BINS - 1
    assert len(ends) <= bins
    starts = np.concatenate([[0], np.asarray(ends[:-1], dtype=np.int64) + 1])
    mass = np.add.reduceat(fit, starts)
    assert mass.sum() == fit.sum()
    if len(ends) > 1:
        assert mass.min() >= 0.5 * fit.sum() / bins


@settings(max_examples=60, deadline=None)
@given(histograms, histograms)
def test_psi_is_finite_and_not_negative(fit: dict[int, float], current: dict[int, float]) -> None:
    result = look_at(reference_of(histogram(fit)), histogram(current))
    if result.status[0] == KNOWN:
        assert 0 <= result.psi[0] < 40
        assert np.isfinite(result.excess[0])


def test_groups_do_not_influence_each_other() -> None:
    rng = np.random.default_rng(5)
    histories = [of_scores(rng.beta(a, 2, 5_000)) for a in (1, 2, 3)]
    currents = [of_scores(rng.beta(2, 2, 800)) for _ in range(3)]
    singles = [reference_of(h) for h in histories]
    groups = [ReferenceGroup("a", str(i), s.groups[0].last_bins, s.groups[0].rows, 1.0) for i, s in enumerate(singles)]
    together = PsiReference(groups, 1.0)
    counts = np.zeros(together.rows.shape, dtype=np.int64)
    for i, current in enumerate(currents):
        np.add.at(counts[i], together.bin_of[i], current.astype(np.int64))
    result = look(together, counts, 0.1, 1e-3)
    for i, (single, current) in enumerate(zip(singles, currents, strict=True)):
        alone = look_at(single, current, tail=1e-3)
        assert result.psi[i] == pytest.approx(alone.psi[0])
        assert result.alarm[i] == alone.alarm[0]


def test_design_effect_of_steady_windows_is_near_one_and_of_shocks_far_above() -> None:
    rng = np.random.default_rng(6)
    steady = np.array([of_scores(rng.random(500)) for _ in range(20)]).astype(np.int64)
    shocks = np.array([of_scores(rng.random(500) ** rng.uniform(0.5, 2)) for _ in range(20)]).astype(np.int64)
    for windows, low, high in ((steady, 1.0, 1.8), (shocks, 5.0, 200.0)):
        group = reference_group(None, None, windows.sum(axis=0).astype(np.float64), windows, 10)
        assert group.design_effect is not None
        assert low <= group.design_effect <= high


def test_design_effect_needs_three_windows() -> None:
    rng = np.random.default_rng(7)
    windows = np.array([of_scores(rng.random(500)) for _ in range(2)]).astype(np.int64)
    assert reference_group(None, None, windows.sum(axis=0).astype(np.float64), windows, 10).design_effect is None
