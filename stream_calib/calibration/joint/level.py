"""The level: one common offset on top of a structure as it is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.joint.minimum import find_minima
from stream_calib.calibration.joint.penalty import Penalty
from stream_calib.calibration.joint.runs import Block, MergedCells, Runs, StartingPoint
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
    if not len(log_odds):
        return 0.0
    start = np.zeros(1, dtype=np.intp)
    cells, begin = MergedCells(labelled, positives, start), StartingPoint(log_odds, None)
    runs = Runs(cells, [begin], [Block(start + 1, 1, slope=False)])
    none = np.zeros(runs.shape)
    penalty = Penalty(runs.each([prior]), none)
    found = find_minima(runs, penalty, none, np.ones(runs.shape, dtype=bool), tolerance=1e-10)
    for error in found.errors:
        if error is not None:
            raise error
    return float(round_significant(runs.split(found.parameters)[0]).item())
