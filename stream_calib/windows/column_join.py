"""The join of one shard in columns: a batch is a few calls of numpy, whatever its size.

Predictions and label versions are runs sorted by fingerprint (sorted_runs.py). What comes is gathered until there is
enough for a run of its own, or somebody reads: what scores and labels come to does not depend on where they are cut,
as long as nothing is removed between. Entries of panes that were removed stay in their runs until these are merged, and
are passed over.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_calib.windows.intake import concatenate_labels, concatenate_scores
from stream_calib.windows.join_entry import Outcome
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.plain_join import COUNTED
from stream_calib.windows.row_codec import EMPTY_ROWS
from stream_calib.windows.shard_join import ShardJoin
from stream_calib.windows.shard_store import LabelRows, ScoreRows
from stream_calib.windows.sorted_runs import Found, Run, SortedRuns, spread

_ENOUGH = 1 << 16
"""Rows for a run of their own."""
_DROPPED = 0
"""Code of a version that is done with."""
_CODES = 4


class _Pairs(NamedTuple):
    """p predictions of ids that were looked for, by id; one a pane."""

    ids: NDArray[np.intp]
    """(p,) into what was looked for."""
    time_ms: NDArray[np.int64]


class _Versions(NamedTuple):
    """v held label versions."""

    ids: NDArray[np.intp]
    """(v,) into what was looked for."""
    time_ms: NDArray[np.int64]
    from_ms: NDArray[np.int64]


class ColumnJoin(ShardJoin):
    """See ShardJoin."""

    def __init__(self, settings: PaneSettings) -> None:
        self._pane_ms, self._horizon_ms = settings.pane_ms, settings.horizon_ms
        self._rows: dict[int, list[ScoreRows]] = defaultdict(list)
        """The first of a pane may be what was read before, sorted by fingerprint."""
        self._predictions = SortedRuns()
        """Columns: score time of an id's first score in a pane (as far as a run has it)."""
        self._versions = SortedRuns()
        """Columns: label time, code or _DROPPED, from_ms, how many panes had been removed when it came."""
        self._held: Counter[int] = Counter()
        """Pane of the label -> versions."""
        self._scores: list[ScoreRows] = []
        self._labels: list[LabelRows] = []
        """Not in runs yet."""
        self._counts: dict[int, Counter[str]] = defaultdict(Counter)
        self._removed, self._removals, self._low_ms = -1, 0, -1

    @property
    def _since_ms(self) -> int:
        """The end of the last pane that was removed."""
        return (self._removed + 1) * self._pane_ms

    def add_scores(self, rows: ScoreRows) -> None:
        for pane, mine in _by_pane(rows, self._pane_ms):
            self._rows[pane].append(mine)
        self._scores.append(rows)
        self._settle(_ENOUGH)

    def add_labels(self, rows: LabelRows) -> None:
        from_ms = np.zeros(len(rows), dtype=np.int64) if rows.from_ms is None else rows.from_ms
        self._labels.append(replace(rows, from_ms=from_ms))
        self._settle(_ENOUGH)

    def counts(self) -> Mapping[int, Counter[str]]:
        self._settle()
        return self._counts

    def rows(self, pane: int) -> ScoreRows:
        chunks = self._rows.get(pane, [])
        if not chunks:
            return EMPTY_ROWS
        if len(chunks) > 1 or chunks[0].snapshots[0] != "":
            rows = concatenate_scores([EMPTY_ROWS, *chunks])
            self._rows[pane] = [rows.take(np.argsort(rows.fingerprint))]
        return self._rows[pane][0]

    def best(self, fingerprint: NDArray[np.uint64], event_time_ms: NDArray[np.int64]) -> NDArray[np.uint8]:
        self._settle()
        # The newest is the largest number, and of equally new ones the smaller code.
        number = np.full(len(fingerprint), -1, dtype=np.int64)
        for index, run, place in self._versions.find(fingerprint):
            time, code, from_ms, _ = (column[place] for column in run.columns)
            joins = (code != _DROPPED) & self._joins(time, from_ms, event_time_ms[index])
            np.maximum.at(number, index[joins], time[joins] * _CODES + (_CODES - 1 - code[joins]))
        return np.where(number < 0, 0, _CODES - 1 - number % _CODES).astype(np.uint8)

    def remove(self, pane: int, low_ms: int) -> None:
        self._settle()
        gone = sum(len(chunk) for chunk in self._rows.pop(pane, ()))
        self._removed, self._removals, self._low_ms = pane, self._removals + 1, low_ms
        self._predictions.forget(gone, self._since_ms)
        older = [p for p in self._held if p <= pane]
        self._versions.forget(sum(self._held.pop(p) for p in older), self._since_ms)
        self._counts.pop(pane, None)

    def _settle(self, enough: int = 1) -> None:
        """Makes runs of what has come, if that is at least so many rows."""
        if sum(map(len, self._scores)) + sum(map(len, self._labels)) < enough:
            return
        scores, labels = self._scores, self._labels
        self._scores, self._labels = [], []
        if scores:
            fingerprint = np.concatenate([rows.fingerprint for rows in scores])
            time = np.concatenate([rows.event_time_ms for rows in scores])
            order = np.argsort(fingerprint)
            self._predict(_one_a_pane(Run.of(fingerprint[order], (time[order],)), self._pane_ms))
        if labels:
            rows = concatenate_labels(labels)
            self._hold(rows.take(np.argsort(rows.fingerprint)))

    # --- scores

    def _tidy(self, run: Run) -> Run:
        return _one_a_pane(run.since(self._since_ms), self._pane_ms)

    def _predict(self, run: Run) -> None:
        """Adds predictions; what held versions come to is counted again."""
        found = [one for one in self._versions.find(run.fingerprint) if len(one.wanted)]
        if not found:
            self._predictions.add(run, self._tidy)
            return
        ids = np.unique(np.concatenate([run.fingerprint[index] for index, _, _ in found]))
        before = self._predicted(ids)
        held = self._still_held(ids, before)
        self._predictions.add(run, self._tidy)
        self._note(held, before, -1)
        self._note(held, self._predicted(ids), 1)

    def _still_held(self, ids: NDArray[np.uint64], before: _Pairs) -> _Versions:
        """The versions of the ids. Those that the last removal found without a prediction, and no score could join, are
        dropped now."""
        predicted = np.bincount(before.ids, minlength=len(ids)) > 0
        parts = []
        for index, run, place in self._versions.find(ids):
            time, code, from_ms, removals = (column[place] for column in run.columns)
            over = ~predicted[index] & (time <= self._low_ms) & (removals < self._removals)
            run.columns[1][place[over]] = _DROPPED
            held = ~over & (code != _DROPPED) & (time >= self._since_ms)
            parts.append((index[held], time[held], from_ms[held]))
        return _Versions(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    # --- labels

    def _hold(self, rows: LabelRows) -> None:
        """Adds versions, sorted by fingerprint, and counts what they come to."""
        n, from_ms = len(rows), rows.from_ms
        assert from_ms is not None
        self._note(_Versions(np.arange(n), rows.event_time_ms, from_ms), self._predicted(rows.fingerprint), 1)
        removals = np.full(n, self._removals, dtype=np.int32)
        code = rows.code.astype(np.uint8)  # a copy: it is written to
        held = Run.of(rows.fingerprint, (rows.event_time_ms, code, from_ms, removals))
        self._versions.add(held, lambda run: run.since(self._since_ms))
        panes, counts = np.unique(rows.event_time_ms // self._pane_ms, return_counts=True)
        for pane, held in zip(panes.tolist(), counts.tolist(), strict=True):
            self._held[pane] += held

    # --- both

    def _joins(
        self, time_ms: NDArray[np.int64], from_ms: NDArray[np.int64], score_time_ms: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """As join_entry.joins."""
        joins: NDArray[np.bool_] = score_time_ms >= np.maximum(from_ms, time_ms - self._horizon_ms)
        return joins & (score_time_ms < time_ms)

    def _predicted(self, ids: NDArray[np.uint64]) -> _Pairs:
        """The predictions of ids (sorted, may repeat) in panes that are there."""
        found = list(self._predictions.find(ids))
        index, time = _gathered(found, self._since_ms)
        if np.bincount(index, minlength=1).max() <= 1:
            order = np.argsort(index) if len(found) > 1 else slice(None)
            return _Pairs(index[order], time[order])
        order = np.lexsort((time, index))
        index, time = index[order], time[order]
        pane = time // self._pane_ms
        first = np.ones(len(order), dtype=bool)
        first[1:] = (index[1:] != index[:-1]) | (pane[1:] != pane[:-1])
        return _Pairs(index[first], time[first])

    def _note(self, versions: _Versions, predictions: _Pairs, sign: int) -> None:
        """Counts what each version comes to with these predictions of its id."""
        n = len(versions.ids)
        first = np.searchsorted(predictions.ids, versions.ids)
        several = np.searchsorted(predictions.ids, versions.ids, side="right") - first
        version, place = spread(np.arange(n), first, several)
        time, score_time = versions.time_ms[version], predictions.time_ms[place]
        outcome = np.where(several > 0, Outcome.BEYOND_HORIZON, Outcome.UNSCORED)
        outcome[version[score_time >= time]] = Outcome.LEAKED
        outcome[version[self._joins(time, versions.from_ms[version], score_time)]] = Outcome.MATCHED
        keys, counts = np.unique(versions.time_ms // self._pane_ms * len(Outcome) + outcome, return_counts=True)
        for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
            pane, kind = divmod(key, len(Outcome))
            if kind != Outcome.UNSCORED:
                self._counts[pane][COUNTED[Outcome(kind)]] += sign * count


def _gathered(found: list[Found], since_ms: int) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Index and time of all that is not earlier."""
    if not found:
        return np.empty(0, np.intp), np.empty(0, np.int64)
    index = np.concatenate([one.wanted for one in found])
    time = np.concatenate([one.run.columns[0][one.place] for one in found])
    there = time >= since_ms
    return (index, time) if there.all() else (index[there], time[there])


def _by_pane(rows: ScoreRows, pane_ms: int) -> Iterator[tuple[int, ScoreRows]]:
    panes = rows.event_time_ms // pane_ms
    if not (panes[1:] >= panes[:-1]).all():
        order = np.argsort(panes, kind="stable")
        rows, panes = rows.take(order), panes[order]
    starts = np.flatnonzero(np.concatenate([[True], panes[1:] != panes[:-1]])).tolist()
    for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
        yield int(panes[start]), rows if stop - start == len(rows) else rows.take(np.arange(start, stop))


def _one_a_pane(run: Run, pane_ms: int) -> Run:
    """Of the scores of an id in a pane only the first."""
    if run.distinct:
        return run
    (time,) = run.columns
    equal = run.fingerprint[1:] == run.fingerprint[:-1]
    several = np.concatenate([[False], equal]) | np.concatenate([equal, [False]])
    some = np.flatnonzero(several)
    order = some[np.lexsort((time[some], run.fingerprint[some]))]
    fingerprint, pane = run.fingerprint[order], time[order] // pane_ms
    again = np.concatenate([[False], (fingerprint[1:] == fingerprint[:-1]) & (pane[1:] == pane[:-1])])
    kept = np.ones(len(time), dtype=bool)
    kept[order[again]] = False
    return run if kept.all() else run.take(kept)
