"""False alarms without a change, and delays after one, of every detector on the same events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from benchmarks.drift_detectors import Detector, detectors
from benchmarks.drift_river import river_alarms
from benchmarks.drift_traffic import GROUPS, LAWS, PER_WINDOW, SHIFT, Windows, draw, residuals

Advance = Callable[[int], None]
"""Told how many windows more are done."""

WARM_UP = 20
"""Windows without a change before it comes."""
HORIZON = 100
"""Windows after it in which a detection counts."""
CHUNK = 25
"""Windows that are drawn at once."""
_REFERENCE_WINDOWS = 10


@dataclass(frozen=True, slots=True)
class FalseAlarms:
    alarms: int
    events: int

    @property
    def rate(self) -> float:
        """Per 10^6 labelled events."""
        return 1e6 * self.alarms / self.events

    @property
    def interval(self) -> tuple[float, float]:
        """Exact 95 % Poisson interval (Garwood 1936) of the rate."""
        lower = float(chi2.ppf(0.025, 2 * self.alarms)) / 2 if self.alarms else 0.0
        upper = float(chi2.ppf(0.975, 2 * self.alarms + 2)) / 2
        return 1e6 * lower / self.events, 1e6 * upper / self.events


@dataclass(frozen=True, slots=True, eq=False)
class Delays:
    group_events: NDArray[np.float64]
    """(runs,) labelled events of the group from the change to the end of the window that alarms; inf: none did."""

    @property
    def detected(self) -> float:
        """Share of runs within the horizon."""
        return float(np.isfinite(self.group_events).mean())

    def quantile(self, level: float) -> float:
        return float(np.quantile(self.group_events, level, method="inverted_cdf"))


def null_alarms(law: str, events: int, advance: Advance) -> dict[str, FalseAlarms]:
    """`events`: labelled events of all groups together."""
    rng = np.random.default_rng([1, list(LAWS).index(law)])
    compared = detectors(GROUPS, _reference(law, rng))
    windows = events // (GROUPS * PER_WINDOW)
    found = dict.fromkeys(compared, 0)
    for part in parts(windows, CHUNK):
        drawn = draw(LAWS[law], rng, part, GROUPS)
        for name, detector in compared.items():
            found[name] += int(detector.alarms(drawn).sum())
        advance(part)
    return {name: FalseAlarms(alarms, windows * GROUPS * PER_WINDOW) for name, alarms in found.items()}


def delays(law: str, runs: int, warm_up: int, advance: Advance) -> dict[str, Delays]:
    """A group whose probabilities are `SHIFT` higher after `warm_up` windows, so many times."""
    rng = np.random.default_rng([2, list(LAWS).index(law), warm_up])
    found = detectors(runs, _reference(law, rng))
    return first_detections(found, lambda shift: draw(LAWS[law], rng, 1, runs, shift), warm_up, advance)


def river_null(law: str, events: int) -> dict[str, FalseAlarms]:
    rng = np.random.default_rng([5, list(LAWS).index(law)])
    length = events // GROUPS
    found = river_alarms(residuals(LAWS[law], rng, GROUPS, length, length), length)
    return {name: FalseAlarms(len(alarms), GROUPS * length) for name, alarms in found.items()}


def river_delays(law: str, runs: int, warm_up: int) -> dict[str, Delays]:
    """Without the end of a window: River looks at every event."""
    rng = np.random.default_rng([6, list(LAWS).index(law), warm_up])
    changes_at = warm_up * PER_WINDOW
    drawn = residuals(LAWS[law], rng, runs, changes_at + HORIZON * PER_WINDOW, changes_at)
    found = river_alarms(drawn, changes_at)
    made = {}
    for name, alarms in found.items():
        first = np.full(runs, np.inf)
        after = alarms[alarms[:, 1] >= changes_at]
        np.minimum.at(first, after[:, 0], after[:, 1] - changes_at + 1.0)
        made[name] = Delays(first)
    return made


def first_detections(
    compared: Mapping[str, Detector], window: Callable[[float], Windows], warm_up: int, advance: Advance
) -> dict[str, Delays]:
    """`window`: draws the next one, with the given shift; it may come in panes."""
    first: dict[str, NDArray[np.float64]] = {}
    for number in range(warm_up + HORIZON):
        drawn = window(SHIFT if number >= warm_up else 0.0)
        since = (number - warm_up + 1) * PER_WINDOW
        for name, detector in compared.items():
            alarms: NDArray[np.bool_] = np.any(detector.alarms(drawn), axis=0)
            known = first.setdefault(name, np.full(len(alarms), np.inf))
            if since > 0:
                known[alarms & np.isinf(known)] = since
        advance(1)
    return {name: Delays(known) for name, known in first.items()}


def _reference(law: str, rng: np.random.Generator) -> Windows:
    return draw(LAWS[law], rng, _REFERENCE_WINDOWS, GROUPS)


def parts(total: int, most: int) -> Iterator[int]:
    while total > 0:
        yield min(total, most)
        total -= most
