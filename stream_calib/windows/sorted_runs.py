"""Columns sorted by fingerprint, in few runs: what is added becomes a run, and runs of similar size are merged, so that
an entry is moved a few times in its life, and finding fingerprints takes one search in each run (a log-structured merge
tree in memory: O'Neil et al. 1996)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_GROWTH = 3
"""A run is merged with the next younger one when it is less than so many times as large."""

Tidy = Callable[["Run"], "Run"]


@dataclass(frozen=True, slots=True)
class Run:
    """k entries."""

    fingerprint: NDArray[np.uint64]
    """(k,) ascending."""
    columns: tuple[NDArray[Any], ...]
    """Each (k,); the first one is a time, int64."""
    distinct: bool
    """No fingerprint is there twice."""

    @classmethod
    def of(cls, fingerprint: NDArray[np.uint64], columns: tuple[NDArray[Any], ...]) -> Run:
        """Of sorted columns."""
        return cls(fingerprint, columns, not bool((fingerprint[1:] == fingerprint[:-1]).any()))

    def take(self, index: NDArray[Any]) -> Run:
        """The entries at ascending indexes, or of a boolean mask."""
        return Run.of(self.fingerprint[index], tuple(column[index] for column in self.columns))

    def since(self, time_ms: int) -> Run:
        """Without earlier entries."""
        kept = self.columns[0] >= time_ms
        return self if kept.all() else self.take(kept)

    def find(self, wanted: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """All pairs (index into `wanted`, place of an entry with that fingerprint), by index."""
        if not len(self.fingerprint):
            return _NONE, _NONE
        place = np.searchsorted(self.fingerprint, wanted)
        hit = self.fingerprint[np.minimum(place, len(self.fingerprint) - 1)] == wanted
        index = np.flatnonzero(hit)
        first = place[index]
        if self.distinct or not len(index):
            return index, first
        return spread(index, first, np.searchsorted(self.fingerprint, wanted[index], side="right") - first)

    def merged(self, younger: Run) -> Run:
        """The entries of both."""
        n = len(self.fingerprint) + len(younger.fingerprint)
        place = np.searchsorted(self.fingerprint, younger.fingerprint, side="right")
        place += np.arange(len(younger.fingerprint))
        own = np.ones(n, dtype=bool)
        own[place] = False

        def both(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
            column = np.empty(n, a.dtype)
            column[place], column[own] = b, a
            return column

        columns = tuple(both(a, b) for a, b in zip(self.columns, younger.columns, strict=True))
        return Run.of(both(self.fingerprint, younger.fingerprint), columns)


class Found(NamedTuple):
    """p pairs of what was looked for and entries of one run."""

    wanted: NDArray[np.intp]
    """(p,) index into what was looked for, ascending."""
    run: Run
    place: NDArray[np.intp]
    """(p,) in the run."""


class SortedRuns:
    """Few runs, the older ones larger."""

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._gone = 0

    def __len__(self) -> int:
        """Entries, also those that are done with."""
        return sum(len(run.fingerprint) for run in self._runs)

    def add(self, run: Run, tidy: Tidy) -> None:
        """Another run, of which the columns become ours. `tidy` may drop entries of what runs are merged to."""
        self._runs.append(run)
        while len(self._runs) > 1 and len(self._runs[-2].fingerprint) < _GROWTH * len(self._runs[-1].fingerprint):
            younger, older = self._runs.pop(), self._runs.pop()
            self._runs.append(tidy(older.merged(younger)))

    def find(self, wanted: NDArray[np.uint64]) -> Iterator[Found]:
        """The entries with these fingerprints (sorted, for speed), for each run that has some."""
        for run in self._runs:
            index, place = run.find(wanted)
            if len(index):
                yield Found(index, run, place)

    def forget(self, entries: int, since_ms: int) -> None:
        """So many more entries, at most, are older than `since_ms` and done with: where that is half of all, they are
        dropped. Till then they are where they were, or fall to `tidy`."""
        self._gone += entries
        if 2 * self._gone >= len(self):
            self._gone = 0
            kept = [run.since(since_ms) for run in self._runs]
            self._runs = [run for run in kept if len(run.fingerprint)]


def spread(
    index: NDArray[np.intp], first: NDArray[np.intp], n: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """index[i] so many times as n[i] says, and beside it first[i], first[i] + 1, ..."""
    before = np.cumsum(n) - n
    return np.repeat(index, n), np.arange(int(n.sum())) + np.repeat(first - before, n)


_NONE = np.empty(0, np.intp)
