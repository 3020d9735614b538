"""The level: one common offset on top of a structure as it is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.joint.minimum import find_minimum
from stream_calib.calibration.joint.penalty import Penalty
from stream_calib.calibration.joint.runs import Block, Runs
from stream_calib.calibration.rounding import round_significant


def fit_level(
    log_odds: NDArray[np.float64],
    labelled: NDArray[np.float64],
    positives: NDArray[np.float64],
    *,
    prior: float = 300.0,
) -> float:
    """One common offset of the log-odds (k,), shrunk to 0: the joint fit with a single group and ridge `prior`.

    `log_odds` includes the offsets of the structure; `labelled` and `positives` (k,) carry the level's own decay. The
    result lies within 1e-10 of the minimum, to 12 significant digits; 0 without cells. Raises FitError where it is not
    found.
    """
    starts = np.arange(min(len(log_odds), 1))
    runs = Runs(log_odds, np.zeros(len(log_odds)), labelled, positives, starts, [Block(starts + 1, 1, slope=False)])
    fitted = find_minimum(
        runs, Penalty(runs.each([prior]), runs.each([0.0])), np.zeros(runs.parameters), tolerance=1e-10
    )
    return float(round_significant(runs.split(fitted)[0])[0])
