"""Windows of labelled events of many equal groups, whose probabilities are known.

Served is the probability at the centre of a score's grid bin. That is the truth, unless a change, a shock or dependence
is asked for: so the null holds exactly, and counts by (group, grid bin) are all that a detector needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import beta

from stream_calib.calibration.grid import CENTRE_LOG_ODDS, EDGE_LOG_ODDS, locate

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
    # Sums of what single events would give: labels of one grid bin are exchangeable.
    clusters = rng.multinomial(per_window // cluster, _bin_shares(law), size=(windows, groups))
    truth = np.minimum(SERVED + np.broadcast_to(shift, windows)[:, None, None], 1.0)
    positives = rng.binomial(clusters, np.maximum(truth, 0.0))
    return Windows(clusters * cluster, positives * cluster)


@cache
def _bin_shares(law: tuple[float, float]) -> NDArray[np.float64]:
    """(402,) probability of each grid bin."""
    inner = np.concatenate([[0.0], expit(EDGE_LOG_ODDS[1:-1]), [1.0]])
    return np.concatenate([[0.0], np.diff(beta.cdf(inner, *law)), [0.0]])


def residuals(
    law: tuple[float, float], rng: np.random.Generator, groups: int, events: int, changes_at: int
) -> NDArray[np.float32]:
    """(groups, events) label - served, event by event; from event `changes_at` on the probability is `SHIFT` higher."""
    served = SERVED[locate(rng.beta(*law, size=groups * events))[0]].reshape(groups, events)
    truth = served + SHIFT * (np.arange(events) >= changes_at)
    return ((rng.random(served.shape) < truth) - served).astype(np.float32)
