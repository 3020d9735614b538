"""The figures of one method's answers, with intervals by resampling whole blocks, of days or of what belongs together.

Davison, Hinkley, "Bootstrap methods and their application", 1997, sections 3.8 and 8.2.3; percentile intervals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.quality_data import Rows
from stream_calib.calibration.metrics import LOG_LOSS_CLIP, auc, brier, log_loss, worst_group_error

DRAWS_OF_MEANS = 2_000
DRAWS = 100
"""Of AUC and worst group error, which are worked out anew for each draw."""
QUANTILES = (0.025, 0.975)


@dataclass(frozen=True, slots=True)
class Figure:
    """A value and its 95 % bootstrap interval (percentiles)."""

    value: float
    low: float
    high: float

    def text(self, digits: int) -> str:
        return f"{self.value:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


def figures(rows: Rows, probability: NDArray[np.float64], reference: NDArray[np.float64]) -> dict[str, Figure]:
    """Log-loss, its difference to that of the `reference`'s answers (same draws), Brier, AUC, worst group error.

    The worst group error is the largest of many ranges that noise alone would give too; in a draw the noise is larger
    than in the data, so its interval tends to lie high. Compare it between methods, whose draws are the same.
    """
    label, families = rows.label, rows.families()
    blocks = _Blocks(rows.block)
    loss, other = (_losses(label, p) for p in (probability, reference))
    squared = (label - probability) ** 2
    found = {
        "log_loss": Figure(log_loss(label, probability), *blocks.of_mean(loss)),
        "log_loss_difference": Figure(float((loss - other).mean()), *blocks.of_mean(loss - other)),
        "brier": Figure(brier(label, probability), *blocks.of_mean(squared)),
    }
    draws = np.array([_draw(label, probability, families, chosen) for chosen in blocks.draws()])
    low, high = np.quantile(draws, QUANTILES, axis=0).tolist()
    found["auc"] = Figure(auc(label, probability), low[0], high[0])
    found["worst_group_error_percent"] = Figure(worst_group_error(label, probability, families), low[1], high[1])
    return found


def mean_of_blocks(values: NDArray[np.float64], block: NDArray[np.int64]) -> Figure:
    """The mean of values (n,), with its interval by blocks (n,)."""
    return Figure(float(values.mean()), *_Blocks(block).of_mean(values))


class _Blocks:
    """Draws of as many blocks as there are, with replacement; the same in every use."""

    def __init__(self, block: NDArray[np.int64]) -> None:
        _, self._of_row = np.unique(block, return_inverse=True)
        self._count = int(self._of_row.max()) + 1
        order = np.argsort(self._of_row, kind="stable")
        self._rows = np.split(order, np.cumsum(np.bincount(self._of_row, minlength=self._count))[:-1])

    def of_mean(self, values: NDArray[np.float64]) -> tuple[float, float]:
        """Interval of the mean over the rows."""
        random = np.random.default_rng(11)
        times = random.multinomial(self._count, np.full(self._count, 1 / self._count), DRAWS_OF_MEANS)
        sums = np.bincount(self._of_row, values, self._count)
        rows = np.bincount(self._of_row, minlength=self._count)
        means = (times * sums).sum(axis=1) / (times * rows).sum(axis=1)
        low, high = np.quantile(means, QUANTILES).tolist()
        return low, high

    def draws(self) -> list[NDArray[np.intp]]:
        """Rows of each of the fewer draws, as often as their block was drawn."""
        random = np.random.default_rng(12)
        picked = random.integers(0, self._count, (DRAWS, self._count))
        return [np.concatenate([self._rows[block] for block in draw]) for draw in picked.tolist()]


def _draw(
    label: NDArray[np.int64],
    probability: NDArray[np.float64],
    families: list[NDArray[np.intp]],
    rows: NDArray[np.intp],
) -> tuple[float, float]:
    own = [family[rows] for family in families]
    return auc(label[rows], probability[rows]), worst_group_error(label[rows], probability[rows], own)


def _losses(label: NDArray[np.int64], probability: NDArray[np.float64]) -> NDArray[np.float64]:
    p = np.clip(probability, LOG_LOSS_CLIP, 1 - LOG_LOSS_CLIP)
    return np.asarray(-np.where(label == 1, np.log(p), np.log1p(-p)))
