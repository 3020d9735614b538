"""What the soak run calls flat, and what it does not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.soak_figures import BLOCKS, Sample, Slope, is_flat, slope, verdicts, warm
from benchmarks.soak_picture import picture

_SECONDS = np.arange(0.0, 600.0, 3.0)


def _memory(percent_an_hour: float, noise_percent: float = 0.05) -> np.ndarray:
    random = np.random.default_rng(3)
    level = 150e6
    return level * (1 + percent_an_hour / 100 * _SECONDS / 3_600) + random.normal(
        0, noise_percent / 100 * level, len(_SECONDS)
    )


def test_a_straight_line_is_found_exactly() -> None:
    found = slope(_SECONDS, 100.0 + 36.0 * _SECONDS / 3_600)
    assert found.per_hour == pytest.approx(36.0)
    assert found.low_per_hour == pytest.approx(36.0)
    assert found.rise == pytest.approx(36.0 * 597 / 3_600)


@pytest.mark.parametrize(
    ("percent_an_hour", "flat"), [(0.0, True), (1.0, True), (-30.0, True), (4.0, False), (30.0, False)]
)
def test_growth_is_told_from_noise(percent_an_hour: float, flat: bool) -> None:
    assert is_flat(slope(_SECONDS, _memory(percent_an_hour))) is flat


@pytest.mark.parametrize(("rise", "flat"), [(0.3, True), (0.9, True), (1.1, False)])
def test_noise_that_hides_growth_is_no_excuse_for_a_rise_of_more_than_a_percent(rise: float, flat: bool) -> None:
    assert is_flat(Slope(level=100.0, per_hour=12.0, low_per_hour=-3.0, rise=rise)) is flat


def test_a_sure_rise_of_a_few_pages_is_none() -> None:
    assert is_flat(Slope(level=100.0, per_hour=5.0, low_per_hour=4.0, rise=0.3))
    assert not is_flat(Slope(level=100.0, per_hour=5.0, low_per_hour=4.0, rise=0.4))


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="19 samples; a slope needs 20: run longer, or sample more often"):
        slope(_SECONDS[: 2 * BLOCKS - 1], _memory(0.0)[: 2 * BLOCKS - 1])


def _samples(lag_growth: float = 0.0, slower: float = 1.0) -> list[Sample]:
    return [
        Sample(
            seconds=t,
            resident_bytes={"monitor": 150_000_000},
            lags={"calibrate: scores": 100, "monitor: labels": int(lag_growth * t)},
            latency_p50_ms=math.nan if i == 0 else 20.0,
            latency_p99_ms=math.nan if i == 0 else 80.0 * (slower if t > 400 else 1.0),
            redis_used_bytes=1,
            snapshot="" if t < 60 else f"{int(t // 100)}",
            publications=int(t // 100),
            matured_panes=int(t // 6),
        )
        for i, t in enumerate(_SECONDS.tolist())
    ]


def test_nothing_is_judged_before_the_panes_of_the_warm_up_have_matured() -> None:
    samples = _samples()
    assert warm(samples, 0) == samples
    assert warm(samples, 50)[0].seconds == 300.0
    filling = [s._replace(resident_bytes={"monitor": 10**8 + min(int(s.seconds), 300) * 10**5}) for s in samples]
    assert not verdicts(filling, 1_000.0)["monitor_memory_percent_an_hour"].met
    assert verdicts(warm(filling, 50), 1_000.0)["monitor_memory_percent_an_hour"].met


def test_a_service_that_stays_behind_is_not_judged() -> None:
    with pytest.raises(RuntimeError, match="99 panes had matured in the end, and 6 samples came after 97 had, of 40"):
        warm(_samples(), 97)


def test_a_quiet_run_meets_every_goal() -> None:
    found = verdicts(_samples(), 1_000.0)
    assert {name for name, one in found.items() if not one.met} == set()


@pytest.mark.parametrize(
    ("samples", "missed"),
    [
        (_samples(lag_growth=100.0), {"lag_seconds", "lag_growth_percent_of_load"}),
        (_samples(slower=2.0), {"latency_last_third_to_middle"}),
        ([s._replace(snapshot="1") for s in _samples()], {"snapshots_served"}),
    ],
)
def test_what_goes_wrong_is_named(samples: list[Sample], missed: set[str]) -> None:
    assert {name for name, one in verdicts(samples, 1_000.0).items() if not one.met} == missed


def test_the_picture_names_all_lines() -> None:
    drawn = picture(_samples())
    assert drawn.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    for name in ("monitor", "calibrate: scores", "monitor: labels", "median", "99 %"):
        assert f">{name}</text>" in drawn
    assert "nan" not in drawn
