"""Sorting rows by time on disk: sorted runs in a temporary file, merged a piece at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_calib.errors import HistoryError

_RUN_ROWS = 1 << 20
_PIECE_ROWS, _LEAST_PIECE_ROWS = 1 << 16, 1 << 11
_MERGED_ROWS = 1 << 21
"""At most so many rows of all runs are in memory, as long as that leaves each the least piece."""


class _Run(NamedTuple):
    start: int
    rows: int
    last_ms: int


class TimeOrder:
    """Rows with a field `time_ms`, given in any order, and given back by it; those of equal times in an order that is
    the same for the same rows. Memory does not grow with their number, but by a few hundred bytes a run."""

    def __init__(self, dtype: np.dtype[np.void]) -> None:
        self._dtype = dtype
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="stream-calib-")  # noqa: SIM115  # closed by `close`
        self._waiting: list[NDArray[np.void]] = []
        self._waiting_rows = 0
        self._runs: list[_Run] = []
        self._written = 0

    def add(self, rows: NDArray[np.void]) -> None:
        """Takes rows (k,) of the dtype. Raises HistoryError where the temporary file cannot be written."""
        self._waiting.append(rows)
        self._waiting_rows += len(rows)
        if self._waiting_rows >= _RUN_ROWS:
            self._write_run()

    def pieces(self) -> Iterator[NDArray[np.void]]:
        """All rows in order, some at a time; nothing may be added any more."""
        if self._waiting_rows:
            self._write_run()
        cursors = [_Cursor(self._file, run, self._dtype) for run in self._runs]
        piece = max(_LEAST_PIECE_ROWS, min(_PIECE_ROWS, _MERGED_ROWS // max(len(cursors), 1)))
        while True:
            for cursor in cursors:
                cursor.fill(piece)
            cursors = [cursor for cursor in cursors if len(cursor.rows)]
            if not cursors:
                return
            # What is still on disk is not before the last row that was read of its run.
            until = min(cursor.last_ms for cursor in cursors)
            parts = [cursor.take(until) for cursor in cursors]
            parts = [part for part in parts if len(part)]
            yield parts[0] if len(parts) == 1 else _sorted(np.concatenate(parts))

    def close(self) -> None:
        """Gives up the temporary file."""
        with suppress(OSError):  # of rows that could not be written, and that nobody wants any more
            self._file.close()

    def _write_run(self) -> None:
        rows = _sorted(np.concatenate(self._waiting))
        self._waiting, self._waiting_rows = [], 0
        first_ms, last_ms = int(rows["time_ms"][0]), int(rows["time_ms"][-1])
        try:
            self._file.write(rows.tobytes())
            self._file.flush()
        except OSError as error:
            raise HistoryError(
                f"{tempfile.gettempdir()}: a temporary file cannot be written: {error.strerror}; make room, or name"
                " another folder with TMPDIR"
            ) from error
        if self._runs and self._runs[-1].last_ms <= first_ms:
            before = self._runs.pop()
            self._runs.append(_Run(before.start, before.rows + len(rows), last_ms))
        else:
            self._runs.append(_Run(self._written, len(rows), last_ms))
        self._written += len(rows)


class _Cursor:
    def __init__(self, file: IO[bytes], run: _Run, dtype: np.dtype[np.void]) -> None:
        self._file, self._dtype = file, dtype
        self._at, self._left = run.start, run.rows
        self.rows: NDArray[np.void] = np.empty(0, dtype=dtype)

    @property
    def last_ms(self) -> int:
        return int(self.rows["time_ms"][-1])

    def fill(self, piece: int) -> None:
        wanted = min(piece - len(self.rows), self._left)
        if wanted <= 0 or len(self.rows) > piece // 2:
            return
        self._file.seek(self._at * self._dtype.itemsize)
        read = np.frombuffer(self._file.read(wanted * self._dtype.itemsize), dtype=self._dtype)
        self._at, self._left = self._at + wanted, self._left - wanted
        self.rows = np.concatenate([self.rows, read]) if len(self.rows) else read

    def take(self, until_ms: int) -> NDArray[np.void]:
        """The rows up to that time; they are not held any more."""
        stop = int(np.searchsorted(np.ascontiguousarray(self.rows["time_ms"]), until_ms, side="right"))
        taken, self.rows = self.rows[:stop], self.rows[stop:]
        return taken


def _sorted(rows: NDArray[np.void]) -> NDArray[np.void]:
    times = np.ascontiguousarray(rows["time_ms"])
    if (times[1:] >= times[:-1]).all():
        return rows
    # Time and place in one number: sorting these is several times as fast as a stable sort of the times, and `take`
    # as indexing rows of several fields.
    bits, since = len(rows).bit_length(), times - times.min()
    if int(since.max()).bit_length() + bits < 64:
        keys = (since << bits) | np.arange(len(rows))
        keys.sort()
        order = keys & ((1 << bits) - 1)
    else:  # a century and four million rows at once
        order = np.argsort(times, kind="stable")
    in_order: NDArray[np.void] = rows.take(order)
    return in_order
