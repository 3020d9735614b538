"""The worker's side of the join: sharing batches out to the shards so that each applies every position exactly once.

A shard takes a call only when it stands exactly at the call's start. Where it is ahead (a redelivery), the batch is
trimmed
to what it lacks; where it is behind (it was rolled back or wiped), the input is rewound to there. Nothing is ever
skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from stream_calib.errors import StateError, StateUnavailableError
from stream_calib.windows.input_batch import DROP_NAMES, InputBatch
from stream_calib.windows.row_codec import EMPTY_ROWS
from stream_calib.windows.shard_store import (
    Advance,
    Drop,
    Entry,
    Inputs,
    LabelRows,
    Mark,
    ScoreRows,
    ShardCall,
    ShardStore,
)

_MAX_ROUNDS = 1_000
_REGISTRATIONS = 5


class Intake:
    """Brings batches of registered inputs to all shards.

    `register` gives a first mark to the shards that lack an input (registration.py) and names all inputs. It is called
    at once, and again when a shard turns out to have been wiped, or to know inputs that this worker does not.
    """

    def __init__(self, shards: ShardStore, register: Callable[[], Inputs]) -> None:
        self._shards = shards
        self._register = register
        self.inputs = register()

    def register(self) -> None:
        """To be called now and then, and when there may be new inputs."""
        self.inputs = self._register()

    def restart(self, input_key: str) -> Mark:
        """Where to read the input from: the least position over the shards, with the clock of the same shard."""
        return min((marks[input_key] for marks in self._marks()), key=lambda mark: mark.next)

    def behind(self, positions: Mapping[str, int]) -> dict[str, Mark]:
        """Of inputs that are read from these positions on, those that a shard still needs from earlier on -> where to.

        A shard that was rolled back or wiped shows when it is written to; without traffic, only by asking.
        """
        shards = self._marks()
        least = {i: min((marks[i] for marks in shards), key=lambda mark: mark.next) for i in positions}
        return {i: mark for i, mark in least.items() if mark.next < positions[i]}

    def _marks(self) -> list[dict[str, Mark]]:
        """Each shard's marks, complete."""
        for _ in range(_REGISTRATIONS):
            progress = self._shards.progress()
            wanted = (*self.inputs.scores, *self.inputs.labels)
            sizes = len(self.inputs.scores), len(self.inputs.labels)
            more = any(p.inputs[side] > sizes[side] for p in progress for side in (0, 1))
            if not more and all(i in p.marks for p in progress for i in wanted):
                return [p.marks for p in progress]
            self.register()
        if more:
            raise StateUnavailableError(
                "another process is adding a partition that this one does not see yet; it is tried again"
            )
        raise StateError(
            "a shard has no position for an input although it was just registered; is the store being wiped?"
        )

    def apply(self, batches: Sequence[InputBatch], to: Iterable[int] | None = None) -> dict[str, Mark]:
        """Applies the batches (one an input) to every shard, or to these. Inputs that must be rewound -> where to."""
        rewinds: dict[str, Mark] = {}
        most = self._shards.operations_a_call
        todo: dict[int, dict[str, int]] = {
            shard: {batch.input_key: batch.start for batch in batches}
            for shard in (range(self._shards.count) if to is None else to)
        }
        for _ in range(_MAX_ROUNDS):
            calls = [call for shard, starts in todo.items() for call in _calls(shard, batches, starts, most)]
            if not calls:
                return rewinds
            answers = self._shards.apply(calls, self.inputs)
            refused = {call.shard for call, answer in zip(calls, answers, strict=True) if answer is not None}
            marks = self._marks() if refused else []
            todo = {shard: _starts(batches, marks[shard], rewinds) for shard in sorted(refused)}
        raise StateError("the shards moved on under every attempt to apply a batch; are there hundreds of workers?")


def _starts(batches: Sequence[InputBatch], marks: dict[str, Mark], rewinds: dict[str, Mark]) -> dict[str, int]:
    """Where a shard with these marks must go on with each batch; notes the inputs that it needs from earlier on."""
    starts = {}
    for batch in batches:
        mark = marks[batch.input_key]
        if mark.next < batch.start:
            known = rewinds.get(batch.input_key)
            rewinds[batch.input_key] = mark if known is None or mark.next < known.next else known
        elif mark.next < batch.end:
            starts[batch.input_key] = mark.next
    return starts


def _calls(shard: int, batches: Sequence[InputBatch], starts: dict[str, int], most: int) -> Iterator[ShardCall]:
    """The shard's part of the batches from `starts` on, cut between records into calls of at most `most` operations
    each; a record that has more is a call of its own."""
    parts = [_Part(shard, batch, starts[batch.input_key]) for batch in batches if batch.input_key in starts]
    operations = [part.operations for part in parts]
    if not parts:
        return
    ends = _cut(np.concatenate(operations), most)
    offsets = np.cumsum([0, *(len(o) for o in operations)])
    begin = 0
    for end in ends:
        pieces = []
        for part, offset, records in zip(parts, offsets[:-1].tolist(), map(len, operations), strict=True):
            first, stop = (min(max(at - offset, 0), records) for at in (begin, end))
            if stop > first or (not records and begin == 0):
                pieces.append(part.piece(first, stop))
        if pieces:
            yield _merge(shard, pieces)
        begin = end


def _cut(operations: NDArray[np.intp], most: int) -> list[int]:
    """Ends of runs of records with at most `most` operations, or one record that has more; each run is filled as far as
    that goes. One end at least, also where there are no records."""
    after = np.cumsum(operations)
    ends = [0]
    while ends[-1] < len(after):
        begin = ends[-1]
        done = after[begin - 1] if begin else 0
        ends.append(int(np.searchsorted(after, max(done + most, after[begin]), side="right")))
    return ends[1:] or [0]


class _Part:
    """One batch's records for one shard, from a position on."""

    def __init__(self, shard: int, batch: InputBatch, start: int) -> None:
        self.batch = batch
        self.start = start
        self.first_record = int(np.searchsorted(batch.position, start))
        self.rows = np.flatnonzero((batch.row_shard == shard) & (batch.row_position >= start))
        self.drops = np.flatnonzero((batch.drop_shard == shard) & (batch.drop_position >= start))
        self.positions = batch.position[self.first_record :]
        self.row_record = np.searchsorted(self.positions, batch.row_position[self.rows])
        self.drop_record = np.searchsorted(self.positions, batch.drop_position[self.drops])

    @property
    def operations(self) -> NDArray[np.intp]:
        """Number of rows in each record from `start` on."""
        return np.bincount(self.row_record, minlength=len(self.positions))

    def piece(self, first: int, stop: int) -> _Piece:
        """Records first <= i < stop. Pieces follow each other without a gap, from `start` to the batch's end."""
        batch, last = self.batch, stop >= len(self.positions)
        start = self.start if first == 0 else int(self.positions[first])
        end = batch.end if last else int(self.positions[stop])
        clock = batch.clock_at(self.first_record + stop)
        entries = [e for e in batch.entries if start <= e.position < end]
        first_clock = batch.first_clock_ms if any(e.clock_ms is None for e in entries) else None
        rows = self.rows[np.searchsorted(self.row_record, first) : np.searchsorted(self.row_record, stop)]
        drops = self.drops[np.searchsorted(self.drop_record, first) : np.searchsorted(self.drop_record, stop)]
        return _Piece(batch, Advance(start, end, clock, first_clock), entries, rows, drops)


class _Piece:
    def __init__(
        self,
        batch: InputBatch,
        advance: Advance,
        entries: Sequence[Entry],
        rows: NDArray[np.intp],
        drops: NDArray[np.intp],
    ) -> None:
        self.batch = batch
        self.advance = advance
        self.entries = entries
        self.rows = rows
        side = "score" if batch.side == "s" else "label"
        counts = Counter(zip(batch.drop_kind[drops].tolist(), batch.drop_pane[drops].tolist(), strict=True))
        self.drops = [Drop(f"{side}_{DROP_NAMES[kind]}", pane, n) for (kind, pane), n in counts.items()]


def _merge(shard: int, pieces: Sequence[_Piece]) -> ShardCall:
    scores = [p.batch.scores.take(p.rows) for p in pieces if p.batch.side == "s" and len(p.rows)]
    labels = [p.batch.labels.take(p.rows) for p in pieces if p.batch.side == "l" and len(p.rows)]
    return ShardCall(
        shard,
        {p.batch.input_key: p.advance for p in pieces},
        concatenate_scores(scores),
        concatenate_labels(labels),
        [drop for p in pieces for drop in p.drops],
        {p.batch.input_key: p.entries for p in pieces if p.entries},
    )


def concatenate_scores(parts: Sequence[ScoreRows]) -> ScoreRows:
    """All rows in order, under one common list of snapshots."""
    if not parts:
        return EMPTY_ROWS
    snapshots: dict[str, int] = {}
    index = []
    for part in parts:
        local = np.array([snapshots.setdefault(v, len(snapshots)) for v in part.snapshots], dtype=np.uint16)
        index.append(local[part.snapshot_index])
    return ScoreRows(
        np.concatenate([p.fingerprint for p in parts]),
        np.concatenate([p.event_time_ms for p in parts]),
        np.concatenate([p.score for p in parts]),
        np.concatenate([p.signature for p in parts]),
        np.concatenate([p.unit_bucket for p in parts]),
        np.concatenate(index),
        np.concatenate([p.served for p in parts]),
        tuple(snapshots),
    )


def concatenate_labels(parts: Sequence[LabelRows]) -> LabelRows:
    """All rows in order."""
    from_ms = [part.from_ms for part in parts if part.from_ms is not None]
    return LabelRows(
        np.concatenate([np.empty(0, np.uint64), *(part.fingerprint for part in parts)]),
        np.concatenate([np.empty(0, np.int64), *(part.event_time_ms for part in parts)]),
        np.concatenate([np.empty(0, np.uint8), *(part.code for part in parts)]),
        np.concatenate(from_ms) if from_ms else None,
    )
