"""Windows of labelled events of many equal groups, whose probabilities are known.

Scores are drawn one by one and served as the probability at the centre of their grid bin. That is the truth, unless a
change, a shock or dependence is asked for: so the null holds exactly, and counts by (group, grid bin) are all that a
detector needs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from stream_calib.calibration.grid import CENTRE_LOG_ODDS, N_BINS, locate

LAWS: dict[str, tuple[float, float]] = {"Beta(2,8)": (2.0, 8.0), "Beta(1,19)": (1.0, 19.0), "Beta(2,2)": (2.0, 2.0)}
GROUPS = 50
PER_WINDOW = 200
"""Labelled events of a group in a window."""
SHIFT = 0.05
"""Of the probability of a positive, from a change on."""

SERVED: NDArray[np.float64] = expit(CENTRE_LOG_ODDS)
"""(402,) by grid bin."""


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Counts (windows, groups, 402) of labelled events and of positives by grid bin."""

    labelled: NDArray[np.int64]
    positives: NDArray[np.int64]

    @property
    def events(self) -> int:
        return int(self.labelled.sum())


def draw(
    law: tuple[float, float],
    rng: np.random.Generator,
    windows: int,
    groups: int,
    shift: float | NDArray[np.float64] = 0.0,
    cluster: int = 1,
    per_window: int = PER_WINDOW,
) -> Windows:
    """`shift` is added to every probability: one number, or one of each window (windows,). Events come in clusters of
    so many that share score and label; `per_window` of a group in a window."""
    own = per_window // cluster
    grid_bin = locate(rng.beta(*law, size=windows * groups * own))[0].astype(np.intp)
    truth = SERVED[grid_bin] + np.repeat(np.broadcast_to(shift, windows), groups * own)
    positive = rng.random(len(grid_bin)) < truth
    place = np.repeat(np.arange(windows * groups) * N_BINS, own) + grid_bin
    shape, slots = (windows, groups, N_BINS), windows * groups * N_BINS
    labelled = np.bincount(place, minlength=slots).reshape(shape)
    positives = np.bincount(place[positive], minlength=slots).reshape(shape)
    return Windows(labelled * cluster, positives * cluster)


def residuals(
    law: tuple[float, float], rng: np.random.Generator, groups: int, events: int, changes_at: int
) -> NDArray[np.float32]:
    """(groups, events) label - served, event by event; from event `changes_at` on the probability is `SHIFT` higher."""
    served = SERVED[locate(rng.beta(*law, size=groups * events))[0]].reshape(groups, events)
    truth = served + SHIFT * (np.arange(events) >= changes_at)
    return ((rng.random(served.shape) < truth) - served).astype(np.float32)
