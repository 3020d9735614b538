"""Rows of one side of a feed of files as the records of one input."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from stream_calib.windows.input_batch import Records
from stream_calib.windows.panes import ENDED_CLOCK_MS, PaneSettings
from stream_calib.windows.shard_store import LabelRows, ScoreRows

_ROWS_A_RECORD = 1_000
"""As many as a block has at most."""


class FileInput:
    """Pieces of rows as they are taken, and the records of an input that they make."""

    def __init__(
        self, key: str, pieces: Iterator[NDArray[np.void]], dtype: np.dtype[np.void], settings: PaneSettings
    ) -> None:
        self.key, self._pieces, self._dtype = key, pieces, dtype
        # Under the broker clock every label moves it by itself.
        self._rows_a_record = 1 if key.startswith("l:") and settings.broker_clock else _ROWS_A_RECORD
        self.clock_ms = -1
        self._position = 0
        self._next = next(pieces, None)

    def take(self) -> tuple[NDArray[np.void], bool]:
        """The next rows, which may be none, and whether they are the last ones."""
        rows = np.empty(0, dtype=self._dtype) if self._next is None else self._next
        self._next = next(self._pieces, None)
        return rows, self._next is None

    def records(self, rows: NDArray[np.void], own_rows: ScoreRows | LabelRows, *, is_last: bool) -> Records:
        """The rows as records of an input: runs of own rows, and of other models' rows, which are clock records."""
        n, start, own = len(rows), self._position, rows["own"]
        time_ms = rows["time_ms"].copy()
        first = np.arange(0, n, self._rows_a_record)
        if not own.all():
            first = np.union1d(first, np.flatnonzero(own[1:] != own[:-1]) + 1)
        latest = np.maximum.reduceat(time_ms, first) if n else time_ms
        of_others = np.flatnonzero(~own[first])
        row_record = np.repeat(np.arange(len(first)), np.diff(np.append(first, n)))[own]
        position, clock_record, clock_time_ms = start + first, of_others, latest[of_others]
        self._position += n
        if n:
            self.clock_ms = max(self.clock_ms, int(latest.max()))
        if is_last:
            position = np.append(position, start + n)
            latest = np.append(latest, max(self.clock_ms, 0))
            clock_record, clock_time_ms = np.append(of_others, len(first)), np.append(clock_time_ms, ENDED_CLOCK_MS)
            self._position += 1
        return Records(start, self._position, position, latest, own_rows, row_record, clock_record, clock_time_ms)
