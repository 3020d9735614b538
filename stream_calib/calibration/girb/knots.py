"""From calibrated score groups to the knots of a map: linear or step, continued at both ends."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from stream_calib.calibration.girb.score_groups import ScoreGroups
from stream_calib.calibration.grid import EDGE_LOG_ODDS

Shape = Literal["linear", "step"]

Knots = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Raw log-odds (k,), strictly increasing, and probabilities (k,), non-decreasing."""

STEP_WIDTH = 1e-9
"""Log-odds in which a step map rises from one group's value to the next one's: the last before the boundary.

The grid cannot hold a jump inside a bin: a served map rises over the whole bin in which, or below which, it lies.
"""


def knots(groups: ScoreGroups, value: NDArray[np.float64], shape: Shape) -> Knots:
    """Knots of calibrated groups: `value` (g,) at the representative scores, or over the whole of each group."""
    if shape == "linear" or len(value) == 1:
        return groups.log_odds, value
    # A score on the boundary belongs to the next group, also where rounding carried the boundary past it.
    end, begin = groups.boundaries - STEP_WIDTH, groups.boundaries - STEP_WIDTH / 10
    x = np.stack([end, begin], axis=1).ravel()
    y = np.stack([value[:-1], value[1:]], axis=1).ravel()
    # Of groups narrower than a step only the lowest and the highest value show.
    clear = np.append(np.append(True, np.repeat(end[1:] > begin[:-1], 2)), True)
    return x[clear], y[clear]


def with_end_slopes(inner: Knots, slope: float, bounds: tuple[float, float]) -> Knots:
    """Knots that go on beyond both ends with `slope`, kept within `bounds`, in log-odds per raw log-odds.

    The line is exact at the grid's edges and linear in the probability between them. Ends at probability 0 or 1 have no
    log-odds and stay.
    """
    x, value = inner
    held = float(np.clip(slope, *bounds))
    first, last = np.searchsorted(EDGE_LOG_ODDS, [x[0] - STEP_WIDTH, x[-1] + STEP_WIDTH])
    low, high = EDGE_LOG_ODDS[:first], EDGE_LOG_ODDS[last:]
    below = expit(logit(value[0]) + held * (low - x[0]))
    above = expit(logit(value[-1]) + held * (high - x[-1]))
    return np.concatenate([low, x, high]), np.concatenate([below, value, above])
