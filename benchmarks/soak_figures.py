"""From the samples of `soak.py` to its figures: what grows, by how much, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

FLAT_PERCENT_AN_HOUR = 2.0
LEAST_RISE_PERCENT, MOST_RISE_PERCENT = 0.33, 1.0
"""Of a process's memory, over all that is judged, by the fitted line. The first is what 2 % an hour make in ten
minutes: less is a few pages, and no growth."""
MOST_LAG_S = 3.0
"""Of load, on average over the last third."""
LATENCY_RATIO = 1.25
"""99th percentile of the last third to that of the middle third, medians."""
BLOCKS = 10
_CONFIDENCE = 0.95


class Sample(NamedTuple):
    """What was seen at one moment."""

    seconds: float
    """Since the load began."""
    resident_bytes: Mapping[str, int]
    """Process -> its resident memory."""
    lags: Mapping[str, int]
    """Role and topic -> offsets that it has not passed."""
    latency_p50_ms: float
    """From writing a score to reading its committed output, over the last while; NaN where none came."""
    latency_p99_ms: float
    redis_used_bytes: int
    snapshot: str
    publications: int
    """Snapshots that were published so far."""
    matured_panes: int

    @property
    def lag(self) -> int:
        return sum(self.lags.values())


class Slope(NamedTuple):
    """A straight line through the means of BLOCKS blocks of equal length."""

    level: float
    """Mean of the values."""
    per_hour: float
    low_per_hour: float
    """Lower end of a one-sided 95 % interval. Means of blocks, because neighbouring samples are alike: by itself a
    regression over all samples would be far too sure."""
    rise: float
    """By the line, from its start to its end."""

    @property
    def percent_an_hour(self) -> float:
        return 100 * self.per_hour / self.level

    @property
    def low_percent_an_hour(self) -> float:
        return 100 * self.low_per_hour / self.level

    @property
    def rise_percent(self) -> float:
        return 100 * self.rise / self.level


def slope(seconds: NDArray[np.float64], values: NDArray[np.float64]) -> Slope:
    """Of values (n,) at ascending times (n,); n >= 2 BLOCKS, else ValueError."""
    if len(values) < 2 * BLOCKS:
        raise ValueError(f"{len(values)} samples; a slope needs {2 * BLOCKS}: run longer, or sample more often")
    hours = np.array([part.mean() for part in np.array_split(seconds, BLOCKS)]) / 3_600
    means = np.array([part.mean() for part in np.array_split(values, BLOCKS)])
    x = hours - hours.mean()
    per_hour = float(x @ means / (x @ x))
    residual = means - means.mean() - per_hour * x
    error = float(np.sqrt(residual @ residual / (BLOCKS - 2) / (x @ x)))
    low = per_hour - float(student.ppf(_CONFIDENCE, BLOCKS - 2)) * error
    return Slope(float(means.mean()), per_hour, low, per_hour * float(seconds[-1] - seconds[0]) / 3_600)


def warm(samples: Sequence[Sample], panes: int) -> Sequence[Sample]:
    """The samples from the first one on at which so many panes have matured. RuntimeError where fewer than 4 BLOCKS."""
    first = next((i for i, s in enumerate(samples) if s.matured_panes >= panes), len(samples))
    if len(samples) - first < 4 * BLOCKS:
        raise RuntimeError(
            f"{samples[-1].matured_panes} panes had matured in the end, and {len(samples) - first} samples came after"
            f" {panes} had, of {4 * BLOCKS} that are needed: the service was far behind its load"
        )
    return samples[first:]


class Verdict(NamedTuple):
    """One line of the table."""

    value: float
    goal: str
    bound: float
    met: bool


def is_flat(found: Slope) -> bool:
    """Whether the memory of a process counts as flat: that it grows by more than 2 % an hour is not shown, and it did
    not rise by 1 % either. The second bound is there for the case that the first one's interval is wide."""
    if found.rise_percent <= LEAST_RISE_PERCENT:
        return True
    return found.low_percent_an_hour <= FLAT_PERCENT_AN_HOUR and found.rise_percent <= MOST_RISE_PERCENT


def memory_slopes(samples: Sequence[Sample]) -> dict[str, Slope]:
    """Process -> slope of its resident memory."""
    seconds = np.array([s.seconds for s in samples])
    return {
        name: slope(seconds, np.array([float(s.resident_bytes[name]) for s in samples]))
        for name in samples[0].resident_bytes
    }


def verdicts(samples: Sequence[Sample], scores_per_second: float) -> dict[str, Verdict]:
    """Figure -> what it is and whether it is as it should be, of samples that come after the warm-up. ValueError for
    too few."""
    found = {
        f"{name}_memory_percent_an_hour": Verdict(
            one.percent_an_hour,
            f"<= {FLAT_PERCENT_AN_HOUR:g} (lower bound {one.low_percent_an_hour:.1f}), rise {one.rise_percent:+.2f} %"
            f" <= {MOST_RISE_PERCENT:g} %",
            FLAT_PERCENT_AN_HOUR,
            is_flat(one),
        )
        for name, one in memory_slopes(samples).items()
    }
    third = len(samples) // 3
    middle, last = samples[third : 2 * third], samples[2 * third :]
    lag_s = float(np.mean([s.lag for s in last])) / scores_per_second
    found["lag_seconds"] = Verdict(lag_s, f"<= {MOST_LAG_S:g}", MOST_LAG_S, lag_s <= MOST_LAG_S)
    half = samples[len(samples) // 2 :]
    lag = slope(np.array([s.seconds for s in half]), np.array([float(s.lag) for s in half]))
    low = 100 * lag.low_per_hour / 3_600 / scores_per_second
    grows = 100 * lag.per_hour / 3_600 / scores_per_second
    found["lag_growth_percent_of_load"] = Verdict(grows, f"<= 1 (lower bound {low:.2f})", 1.0, low <= 1.0)
    p99 = [float(np.nanmedian([s.latency_p99_ms for s in part])) for part in (middle, last)]
    ratio = p99[1] / p99[0]
    found["latency_last_third_to_middle"] = Verdict(
        ratio, f"<= {LATENCY_RATIO:g}", LATENCY_RATIO, ratio <= LATENCY_RATIO
    )
    swaps = float(len({s.snapshot for s in samples if s.snapshot}))
    found["snapshots_served"] = Verdict(swaps, ">= 2", 2.0, swaps >= 2)
    return found
