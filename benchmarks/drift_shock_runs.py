"""Ours with and without phi, where events depend on each other: shocks that all groups share, and clusters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.drift_detectors import Residual
from benchmarks.drift_runs import CHUNK, WARM_UP, Advance, Delays, FalseAlarms, first_detections, parts
from benchmarks.drift_traffic import GROUPS, LAWS, PER_WINDOW, SERVED, Windows, draw
from stream_calib.calibration.grid import N_BINS
from stream_calib.drift.overdispersion import overdispersion

_FIT_DAYS = 28


@dataclass(frozen=True, slots=True)
class Dependence:
    """Of the events of a day, `PER_WINDOW` of each group."""

    shock: float = 0.0
    """Standard deviation of what is added to all probabilities of a day."""
    cluster: int = 1
    """So many events share score and label."""
    panes: int = 1
    """The day is looked at in so many panes."""

    def __str__(self) -> str:
        said = f"day shocks of sd {self.shock:g}" if self.shock else f"clusters of {self.cluster}"
        return said if self.panes == 1 else f"{said}, {self.panes} panes a day"

    def days(self, law: str, rng: np.random.Generator, days: int, groups: int, shift: float = 0.0) -> Windows:
        """Pane by pane."""
        shocks = np.repeat(shift + rng.normal(0.0, self.shock, days), self.panes)
        return draw(LAWS[law], rng, days * self.panes, groups, shocks, self.cluster, PER_WINDOW // self.panes)


def frozen_phi(law: str, dependence: Dependence) -> float:
    """What a refit would freeze from a fit window of 28 days."""
    drawn = dependence.days(law, np.random.default_rng(7), _FIT_DAYS, GROUPS)
    by_day = (_FIT_DAYS, dependence.panes, GROUPS)
    residual = (drawn.positives.sum(axis=2) - drawn.labelled @ SERVED).reshape(by_day).sum(axis=1)
    variance = (drawn.labelled @ (SERVED * (1 - SERVED))).reshape(by_day).sum(axis=1)
    phi = overdispersion(residual, variance)
    assert phi is not None  # 28 days are enough
    return phi


def dependent_alarms(
    law: str, events: int, phi: float, dependence: Dependence, advance: Advance
) -> dict[str, FalseAlarms]:
    """Without a change, and the same events for both."""
    rng = np.random.default_rng(3)
    compared = {"with phi": Residual(GROUPS, phi=phi), "without phi": Residual(GROUPS)}
    days = events // (GROUPS * PER_WINDOW)
    found = dict.fromkeys(compared, 0)
    for part in parts(days, CHUNK):
        drawn = dependence.days(law, rng, part, GROUPS)
        for name, detector in compared.items():
            found[name] += int(detector.alarms(drawn).sum())
        advance(part)
    return {name: FalseAlarms(alarms, days * GROUPS * PER_WINDOW) for name, alarms in found.items()}


def dependent_delays(law: str, runs: int, phi: float, dependence: Dependence, advance: Advance) -> dict[str, Delays]:
    """With phi, where a change comes on top."""
    rng = np.random.default_rng(4)

    def day(shift: float) -> Windows:
        # Runs are independent, so each needs its own shock: a day of one group for each of them.
        drawn, shape = dependence.days(law, rng, runs, 1, shift), (runs, dependence.panes, N_BINS)
        labelled, positives = (x.reshape(shape).transpose(1, 0, 2) for x in (drawn.labelled, drawn.positives))
        return Windows(labelled, positives)

    return first_detections({"with phi": Residual(runs, phi=phi)}, day, WARM_UP, advance)
