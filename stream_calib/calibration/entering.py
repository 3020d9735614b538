"""What enters a calibrator: decided by losses on data that came later (or on folds), with their day-clustered error.

The rules ask for proof where something is added beyond what the user configured, and for proof of harm where something
configured is to go: requiring proof for the configured families too cost .001 of log-loss on flights, and day of week
always on cost .006.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def mean_and_error(loss: NDArray[np.float64], rows: NDArray[np.float64]) -> tuple[float, float]:
    """Mean loss a row and its cluster-robust standard error, from sums (b,) over b >= 2 blocks (days or folds).

    Ratio estimate: B / (B - 1) sum_b (l_b - m n_b)^2 / N^2 (Cochran, "Sampling techniques", 1977, section 6).
    """
    total = float(rows.sum())
    mean = float(loss.sum()) / total
    blocks = len(rows)
    squared = float(((loss - mean * rows) ** 2).sum()) * blocks / (blocks - 1)
    return mean, float(np.sqrt(squared)) / total


def stays_on(loss_with: NDArray[np.float64], loss_without: NDArray[np.float64], rows: NDArray[np.float64]) -> bool:
    """Whether something configured stays: unless mean (with - without) - one standard error > 0. Sums (b,) a block."""
    mean, error = mean_and_error(loss_with - loss_without, rows)
    return not mean - error > 0


def comes_on(loss_with: NDArray[np.float64], loss_without: NDArray[np.float64], rows: NDArray[np.float64]) -> bool:
    """Whether something more comes on: only if mean (with - without) + one standard error < 0. Sums (b,) a block."""
    mean, error = mean_and_error(loss_with - loss_without, rows)
    return mean + error < 0


def simplest_rung(losses: NDArray[np.float64], rows: NDArray[np.float64]) -> int:
    """Of rungs in order of complexity, the first whose loss is within one standard error of the best one's.

    `losses` (r, b): sums by rung and block; `rows` (b,). The standard error is that of the paired difference to the
    best rung. A rung that loses more than a simpler one is passed over: what now and then is sure of the wrong outcome,
    as isotonic regression of few rows, has so large a standard error that it would count as near the best.
    """
    total = losses.sum(axis=1)
    best = int(total.argmin())
    for rung in range(best):
        mean, error = mean_and_error(losses[rung] - losses[best], rows)
        if mean <= error and not (total[:rung] < total[rung]).any():
            return rung
    return best
