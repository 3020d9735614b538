"""What the winners of a pane were served, summed by version and class: it tells whether that was right.

Rows are weighed by the keep rates of their events here, because the record of a pane does not tell rates apart; by the
keep rates of their class at reading, because these are in no row.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.metrics import LOG_LOSS_CLIP
from stream_calib.events.blocks import SERVED_ONE, served_probability
from stream_calib.windows.shard_store import ScoreRows

_LOSS_SCALE = 1 << 32
"""Fixed point of log-loss while rows are summed."""
_CLASSES = (0, 1)

InverseRates: TypeAlias = Callable[[NDArray[np.uint64]], NDArray[np.float64]]
"""(k,) 1 / keep rate of k distinct signature hashes."""


class ServedClass(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Of the labelled winners of one class: how many they are, and sums by 1 / keep rate."""

    rows: int = 0
    weight: float = 0.0
    """Sum of 1 / keep rate: `rows` where nothing was thinned."""
    probability: float = 0.0
    """Of what was served."""
    log_loss: float = 0.0


class Served(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Of one version."""

    winners: int
    """Labelled or not; rows."""
    negatives: ServedClass
    positives: ServedClass


class ServedSums:
    """Adds rows up, exactly: in which order and in which parts they come changes no bit."""

    def __init__(self, inverse_rates: InverseRates | None = None) -> None:
        """None: all count 1."""
        self._inverse_rates = inverse_rates
        self._winners = Counter[str]()
        self._sums: defaultdict[tuple[str, int], dict[float, list[int]]] = defaultdict(dict)
        """Version and class -> 1 / keep rate -> rows, sum of served p, sum of log-loss, both in fixed point."""

    def add(self, rows: ScoreRows, label: NDArray[np.int8]) -> None:
        """Winners, with labels (n,) of 0, 1, or -1 for none."""
        p = np.clip(served_probability(rows.served), LOG_LOSS_CLIP, 1 - LOG_LOSS_CLIP)
        loss = np.rint(-np.log(np.where(label == 1, p, 1 - p)) * _LOSS_SCALE).astype(np.int64)
        rate, rate_of = self._rates(rows)
        for index, version in enumerate(rows.snapshots):
            mine = rows.snapshot_index == index
            self._winners[version] += int(mine.sum())
            for of_class in _CLASSES:
                chosen = np.flatnonzero(mine & (label == of_class))
                place, served = rate_of[chosen], rows.served[chosen].astype(np.int64)
                sums = np.zeros((3, len(rate)), np.int64)
                for i, column in enumerate((1, served, loss[chosen])):
                    np.add.at(sums[i], place, column)
                known = self._sums[version, of_class]
                for i in np.flatnonzero(sums[0]).tolist():
                    found = known.setdefault(float(rate[i]), [0, 0, 0])
                    found[:] = [a + b for a, b in zip(found, sums[:, i].tolist(), strict=True)]

    def by_version(self) -> dict[str, Served]:
        """Snapshot version ("" = identity) -> what its winners were served, of those that have any."""
        return {
            version: Served(winners, *(_summed(self._sums[version, of_class]) for of_class in _CLASSES))
            for version, winners in self._winners.items()
            if winners
        }

    def _rates(self, rows: ScoreRows) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """The distinct 1 / keep rates, and (n,) the place of each row's among them."""
        if self._inverse_rates is None:
            return np.ones(1), np.zeros(len(rows), np.intp)
        distinct, signature = np.unique(rows.signature, return_inverse=True)
        rate, place = np.unique(self._inverse_rates(distinct), return_inverse=True)
        return rate, place.reshape(-1)[signature.reshape(-1)]


def _summed(by_rate: dict[float, list[int]]) -> ServedClass:
    """fsum rounds once, at the end, so the order of its terms does not matter."""
    return ServedClass(
        sum(rows for rows, _, _ in by_rate.values()),
        math.fsum(rate * rows for rate, (rows, _, _) in by_rate.items()),
        math.fsum(rate * (served / SERVED_ONE) for rate, (_, served, _) in by_rate.items()),
        math.fsum(rate * (loss / _LOSS_SCALE) for rate, (_, _, loss) in by_rate.items()),
    )
