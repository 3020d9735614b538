"""How often each number is there, of numbers that come in pieces.

Sorting takes as long for numbers that are all different as for few that come often, which is what a hash table in an
engine does not do: where nearly every row is a cell of its own, the whole way from rows to cells takes a tenth longer
with a GROUP BY.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_LEAST_WAITING = 1 << 24
"""Numbers that are counted at a time, 134 megabytes of them; more where more are different."""


class Counted(NamedTuple):
    key: NDArray[np.int64]
    """(k,) distinct numbers, ascending."""
    n: NDArray[np.int64]
    """(k,) how often each is there."""


class Tally:
    """Takes memory for the distinct numbers, and for as many more or `_LEAST_WAITING`."""

    def __init__(self) -> None:
        self._counted = Counted(np.empty(0, np.int64), np.empty(0, np.int64))
        self._waiting: list[NDArray[np.int64]] = []
        self._n_waiting = 0

    def add(self, numbers: NDArray[np.int64]) -> None:
        """(n,) numbers, in any order; they must not change any more."""
        self._waiting.append(numbers)
        self._n_waiting += len(numbers)
        if self._n_waiting >= max(_LEAST_WAITING, len(self._counted.key)):
            self._count_waiting()

    def counted(self) -> Counted:
        """Of all that were added."""
        self._count_waiting()
        return self._counted

    def _count_waiting(self) -> None:
        if not self._n_waiting:
            return
        numbers = np.concatenate(self._waiting)
        self._waiting, self._n_waiting = [], 0
        numbers.sort()
        start = run_starts(numbers)
        found = Counted(numbers[start], np.diff(start, append=len(numbers)))
        self._counted = _added(self._counted, found) if len(self._counted.key) else found


def run_starts(ordered: NDArray[np.int64]) -> NDArray[np.intp]:
    """(k,) where each number is there for the first time, of numbers in order."""
    changed = np.empty(len(ordered), dtype=bool)
    changed[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=changed[1:])
    return np.flatnonzero(changed)


def _added(one: Counted, other: Counted) -> Counted:
    key, n = (np.concatenate(pair) for pair in zip(one, other, strict=True))
    order = np.argsort(key, kind="stable")  # which merges the two that are in order already
    key = key[order]
    start = run_starts(key)
    return Counted(key[start], np.add.reduceat(n[order], start))
