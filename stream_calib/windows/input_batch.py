"""What one poll brought of one input partition, judged by its clock and ready to be shared out to the shards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.events.contracts import TOMBSTONE_TIME_MS
from stream_calib.events.identity import sampled, shards
from stream_calib.windows.clocks import NO_CLOCK, Judged, JudgedByBroker, clock_around, judge, judge_by_broker
from stream_calib.windows.panes import ENDED_CLOCK_MS, PaneSettings
from stream_calib.windows.row_codec import EMPTY_ROWS
from stream_calib.windows.shard_store import Entry, LabelRows, Mark, ScoreRows

EMPTY_LABELS = LabelRows(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.uint8))
LATE, SKEWED, UNSAMPLED = 0, 1, 2
DROP_NAMES = ("late", "skewed", "unsampled")
_ACCEPTED = 3


@dataclass(frozen=True, slots=True)
class Records:
    """m records of one input partition in order, with the n rows that they hold (a block holds many, a reject none)."""

    start: int
    end: int
    """Half-open range of positions, `end` is where the next poll begins."""
    position: NDArray[np.int64]
    """(m,) ascending."""
    append_time_ms: NDArray[np.int64]
    """(m,)"""
    rows: ScoreRows | LabelRows
    row_record: NDArray[np.intp]
    """(n,) index of the record of each row, ascending."""
    clock_record: NDArray[np.intp]
    """(c,) indexes of control records, ascending."""
    clock_time_ms: NDArray[np.int64]
    """(c,) what they set the clock to; ENDED_CLOCK_MS for `end`."""

    def since(self, position: int) -> Records:
        """The records at `position` and later, as a range that starts there."""
        if position == self.start:
            return self
        first = int(np.searchsorted(self.position, position))
        rows, clocks = self.row_record >= first, self.clock_record >= first
        return Records(
            position,
            self.end,
            self.position[first:],
            self.append_time_ms[first:],
            self.rows.take(np.flatnonzero(rows)),
            self.row_record[rows] - first,
            self.clock_record[clocks] - first,
            self.clock_time_ms[clocks],
        )

    def until(self, position: int) -> Records:
        """The records before `position`, as a range that ends there."""
        if position == self.end:
            return self
        stop = int(np.searchsorted(self.position, position))
        rows, clocks = self.row_record < stop, self.clock_record < stop
        return Records(
            self.start,
            position,
            self.position[:stop],
            self.append_time_ms[:stop],
            self.rows.take(np.flatnonzero(rows)),
            self.row_record[rows],
            self.clock_record[clocks],
            self.clock_time_ms[clocks],
        )


@dataclass(frozen=True, slots=True)
class InputBatch:
    """Accepted rows and drops with the position of each, and the clock after each record."""

    input_key: str
    start: int
    end: int
    clock_ms: int | None
    """The clock before the first record."""
    position: NDArray[np.int64]
    """(m,) of the records."""
    clock_after: NDArray[np.int64]
    """(m,) after each record; NO_CLOCK where there is none yet."""
    scores: ScoreRows
    labels: LabelRows
    row_position: NDArray[np.int64]
    """Of the accepted rows, scores or labels."""
    row_shard: NDArray[np.uint16]
    drop_kind: NDArray[np.uint8]
    """LATE, SKEWED or UNSAMPLED."""
    drop_pane: NDArray[np.int64]
    drop_position: NDArray[np.int64]
    drop_shard: NDArray[np.uint16]
    entries: list[Entry]
    first_clock_ms: int | None
    """The input's first clock, where it is in this batch."""

    @property
    def side(self) -> str:
        """ "s" (scores) or "l" (labels)."""
        return self.input_key[0]

    @property
    def mark(self) -> Mark:
        """Where the input is after this batch."""
        return Mark(self.end, self.clock_at(len(self.position)))

    def clock_at(self, records: int) -> int | None:
        """The clock after so many of the batch's records; None where there is none yet."""
        if not records:
            return self.clock_ms
        if self.clock_after[records - 1] == NO_CLOCK:
            return None
        return int(self.clock_after[records - 1])


def judge_records(
    input_key: str, records: Records, clock_ms: int | None, count: int, settings: PaneSettings
) -> InputBatch:
    """Judges the records of an input whose clock is `clock_ms`, for `count` shards.

    A label tombstone takes its partition's clock as its time, and does not move it. (Under the broker clock it moves it
    like any label, and its time is the end of the granule that the clock is then in, so that labels of the same day are
    not newer.) Control records are never skewed.
    """
    side = input_key[0]
    n_rows, n_records = len(records.rows), len(records.position)
    item_record = np.concatenate([records.row_record, records.clock_record])
    order = np.argsort(item_record, kind="stable")
    item_record = item_record[order]
    item_time = np.concatenate([records.rows.event_time_ms, records.clock_time_ms])[order]
    is_row = order < n_rows
    tombstone = is_row & (item_time == TOMBSTONE_TIME_MS)
    append_time = records.append_time_ms[item_record]
    by_broker = side == "l" and settings.broker_clock
    judged: Judged | JudgedByBroker
    if by_broker:
        moves_to = np.where(is_row, append_time, item_time)
        granule_end = settings.granule_end_ms(clock_around(moves_to, clock_ms)[1])
        item_time = np.where(tombstone, granule_end, item_time)
        judged = judge_by_broker(item_time, moves_to, is_row, clock_ms, settings)
        late, skewed = judged.late, np.zeros(len(order), dtype=bool)
    else:
        judged = judge(
            np.where(tombstone, NO_CLOCK, item_time),
            np.where(is_row, append_time, ENDED_CLOCK_MS),
            clock_ms,
            settings.lateness_ms(side),
            settings.clock_skew_ms(side),
        )
        late, skewed = judged.late & ~tombstone, judged.skewed

    last_item = np.searchsorted(item_record, np.arange(n_records), side="right")
    first_clock = NO_CLOCK if clock_ms is None else clock_ms
    clock_after = np.concatenate([[first_clock], judged.clock_after])[last_item]
    clock_before = np.concatenate([[first_clock], clock_after[:-1]]).astype(np.int64)

    # Before the first event there is no clock; the record's own, or the time at which the log took it, is the nearest
    # thing.
    clock = np.where(judged.clock_after == NO_CLOCK, append_time, judged.clock_after)
    clock = np.where(judged.clock_before == NO_CLOCK, clock, judged.clock_before)
    item_time = np.where(tombstone & (not by_broker), clock, item_time)

    # Columns of the rows alone, in their order.
    row = order[is_row]
    fingerprint = records.rows.fingerprint[row]
    kind = np.where(skewed, SKEWED, np.where(late, LATE, _ACCEPTED)).astype(np.uint8)[is_row]
    if side == "l":
        kind[(kind == _ACCEPTED) & ~sampled(fingerprint, settings.sample_rate)] = UNSAMPLED
    row_position = records.position[item_record[is_row]]
    shard = shards(fingerprint, count)
    dropped, accepted = np.flatnonzero(kind != _ACCEPTED), np.flatnonzero(kind == _ACCEPTED)
    rows = records.rows.take(row[accepted])
    entries = _entries(records.position, clock_before, clock_after, settings.pane_ms)
    if isinstance(rows, LabelRows):
        from_ms = judged.from_ms[is_row][accepted] if isinstance(judged, JudgedByBroker) else None
        rows = LabelRows(rows.fingerprint, item_time[is_row][accepted], rows.code, from_ms)
        if by_broker:
            of = item_record[is_row][accepted]
            entries += _ahead(records.position[of], clock_before[of], clock_after[of], rows.event_time_ms, settings)
            entries.sort(key=lambda entry: entry.position)
    return InputBatch(
        input_key,
        records.start,
        records.end,
        clock_ms,
        records.position,
        clock_after,
        rows if isinstance(rows, ScoreRows) else EMPTY_ROWS,
        rows if isinstance(rows, LabelRows) else EMPTY_LABELS,
        row_position[accepted],
        shard[accepted],
        kind[dropped],
        clock[is_row][dropped] // settings.pane_ms,
        row_position[dropped],
        shard[dropped],
        entries,
        _first_clock(judged.clock_after) if clock_ms is None else None,
    )


def _ahead(
    position: NDArray[np.int64],
    before: NDArray[np.int64],
    after: NDArray[np.int64],
    event_time_ms: NDArray[np.int64],
    settings: PaneSettings,
) -> list[Entry]:
    """Labels (n,) that are dated in a later pane than the one that the broker clock has reached: a reader must begin
    there to miss nothing of that pane."""
    pane = event_time_ms // settings.pane_ms
    found: dict[int, Entry] = {}
    for i in np.flatnonzero(pane > after // settings.pane_ms).tolist():
        clock = None if before[i] == NO_CLOCK else int(before[i])
        found.setdefault(int(pane[i]), Entry(int(pane[i]), int(position[i]), clock))
    return list(found.values())


def _first_clock(clock_after: NDArray[np.int64]) -> int | None:
    known = clock_after[clock_after != NO_CLOCK]
    return int(known[0]) if len(known) else None


def _entries(
    position: NDArray[np.int64], before: NDArray[np.int64], after: NDArray[np.int64], pane_ms: int
) -> list[Entry]:
    moved = np.flatnonzero((after != NO_CLOCK) & ((before == NO_CLOCK) | (after // pane_ms > before // pane_ms)))
    return [
        Entry(int(after[i] // pane_ms), int(position[i]), None if before[i] == NO_CLOCK else int(before[i]))
        for i in moved.tolist()
    ]
