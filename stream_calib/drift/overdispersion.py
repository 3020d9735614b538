"""By how much outcomes of a family vary more between blocks of time than independent ones would: phi.

With R the sum of (label - probability) over a cell's events in a block, and V that of probability x (1 - probability),
independent events have E[R^2] = V. Over the cells of a family and W blocks

    phi = sum R^2 / sum V,

the ratio of two sums over blocks, whose standard error is that of ratio estimators (Cochran, "Sampling techniques",
1977, 6.3): s^2 = W / (W - 1) x sum of (A_b - phi V_b)^2 over blocks / (sum V)^2, A_b and V_b summed over the cells of
block b. What is frozen is an upper confidence bound, because a phi that is too small costs false alarms:

    (phi + t s) W / (W - 1),   t: the 95 % quantile of Student's t at W - 1 degrees of freedom.

W / (W - 1) is for the blocks being part of what the probabilities were fitted to. A block is one season of the traffic
(a window of the PSI), so what is shared within a pane is in it, and what neighbouring panes share. (Over 100 days of
flights and at a budget of 3.3 alarms, blocks of a day gave 3, of six hours 23, of an hour 167, and phi = 1 gave 934: a
storm lasts longer than a pane.)
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from stream_calib.drift.psi_reference import MIN_WINDOWS

_CONFIDENCE = 0.95


def overdispersion(residual: NDArray[np.float64], variance: NDArray[np.float64]) -> float | None:
    """phi of one family, at least 1, from R (W, C) and V (W, C); None with fewer than MIN_WINDOWS blocks in which
    anything could vary."""
    squares, variances = (residual**2).sum(axis=1), variance.sum(axis=1)
    used = variances > 0
    blocks = int(used.sum())
    if blocks < MIN_WINDOWS:
        return None
    squares, variances = squares[used], variances[used]
    total = float(variances.sum())
    phi = float(squares.sum()) / total
    error = math.sqrt(blocks / (blocks - 1) * float(((squares - phi * variances) ** 2).sum())) / total
    upper = (phi + float(stdtrit(blocks - 1, _CONFIDENCE)) * error) * blocks / (blocks - 1)
    return max(1.0, upper)
