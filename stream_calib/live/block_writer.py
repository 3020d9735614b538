"""Writes what was served in requests to the log, for the monitor; never in the way of a request."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from stream_calib import metrics
from stream_calib.errors import ConfigurationError, StreamCalibError, TransportError
from stream_calib.events.control import clock_record
from stream_calib.live.forked_child import abandon, in_a_forked_child
from stream_calib.live.waiting_rows import ServedRows, Taken, WaitingRows, records_of
from stream_calib.transport.port import Log, Outgoing

_LOG = logging.getLogger(__name__)

_WRITE_EVERY_S = 0.2
_FULL_BATCH_ROWS = 2_000
_MOST_ROWS = 20_000
_CLOCK_EVERY_MS = 1_000
_LOOK_AT_PARTITIONS_MS = 10_000
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_TELL_EVERY_S = 60.0
_LAST_TRY_S = 0.5


class BlockWriter:
    """Rows wait in a bounded queue, and a thread writes them: at least once, within about a fifth of a second.

    With the log away they wait; where more would wait than may, they are lost to the monitor, counted and logged, and
    the request is answered all the same. Each second every partition of the topic gets a clock record at wall time -
    lateness, but only when no row waits any more that was served before it: a clock never overtakes this process's own
    rows. Thread-safe. The thread begins at `start` or with the first row, in a forked child again (rows that waited in
    the parent are written by the parent).
    """

    def __init__(
        self,
        open_log: Callable[[], Log],
        topic: str,
        *,
        lateness_ms: int,
        clock_records: bool = True,
        max_waiting_bytes: int = 128_000_000,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`open_log`: connects; called on the thread, as ``lambda: KafkaLog(config.log)``. `topic`: topics.live_blocks.
        `lateness_ms`: windows.score_lateness. `clock_records`: off where events are historical. `max_waiting_bytes`: of
        memory, for rows that wait; about 1.2 kB a request and 42 bytes a row. `clock_ms`: wall time.
        """
        self._open_log, self._topic = open_log, topic
        self._lateness_ms, self._clock_records = lateness_ms, clock_records
        self._max_waiting_bytes, self._clock_ms = max_waiting_bytes, clock_ms
        self._log: Log | None = None
        self._give_up_s: float | None = None
        self._reset()
        in_a_forked_child(self._forked)

    def _reset(self) -> None:
        self._waiting = WaitingRows(self._max_waiting_bytes, self._clock_ms)
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._told_full_s = self._told_away_s = float("-inf")
        self._taken = Taken([], None)
        self._partitions = self._looked_at_ms = self._clock_at_ms = 0
        self._pause_s = _FIRST_PAUSE_S

    def _forked(self) -> None:
        abandon(self._log)
        self._log = None
        self._reset()

    def start(self) -> None:
        """Clock records are written from now on."""
        with self._starting:
            if self._thread is None and self._give_up_s is None:
                self._thread = threading.Thread(target=self._run, name="live-blocks", daemon=True)
                self._thread.start()

    def put(self, rows: ServedRows) -> None:
        """Puts the rows down to be written. Does not wait and does not fail."""
        if self._thread is None:
            self.start()
        if self._waiting.put(rows):
            metrics.LIVE_ROWS_WAITING.set(self.waiting)
            return
        metrics.LIVE_ROWS_LOST.inc(len(rows))
        if time.monotonic() - self._told_full_s > _TELL_EVERY_S:
            self._told_full_s = time.monotonic()
            _LOG.error(
                "rows are lost to the monitor: %d wait for %s, and no more may; requests are answered all the same",
                self.waiting,
                self._topic,
            )

    @property
    def waiting(self) -> int:
        """Rows that are not in the log yet."""
        return len(self._waiting)

    def close(self, within_s: float = 5.0) -> None:
        """Writes what waits, for so many seconds at most; what is left is counted as lost, and logged."""
        with self._starting:
            self._give_up_s = time.monotonic() + within_s
            thread = self._thread
        if thread is None:
            return
        self._waiting.close()
        thread.join(within_s + _LAST_TRY_S)
        if self.waiting:
            metrics.LIVE_ROWS_LOST.inc(self.waiting)
            _LOG.error("%d rows are lost to the monitor: %s did not take them in time", self.waiting, self._topic)

    # --- the thread

    def _run(self) -> None:
        while not self._is_done():
            try:
                self._write()
                self._pause_s = _FIRST_PAUSE_S
                self._waiting.wait_for_batch(_FULL_BATCH_ROWS, _WRITE_EVERY_S)
            except (TransportError, ConfigurationError) as error:
                self._tell_away(error)
                if self._give_up_s is None:
                    self._waiting.wait_for_close(self._pause_s)
                    self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
                else:
                    time.sleep(_FIRST_PAUSE_S)
            except Exception:
                # A fault of ours: the same rows would only bring it again.
                _LOG.exception("%d rows are lost to the monitor", sum(map(len, self._taken.rows)))
                metrics.LIVE_ROWS_LOST.inc(sum(map(len, self._taken.rows)))
                self._let_go()
                self._waiting.wait_for_close(_LONGEST_PAUSE_S)  # it may come from what is not in the rows too
        if self._log is not None:
            self._log.close()

    def _is_done(self) -> bool:
        if self._give_up_s is None:
            return False
        return not self.waiting or time.monotonic() >= self._give_up_s

    def _write(self) -> None:
        """What waits, and clock records where they are due. Where it fails the same rows are the next to be written."""
        if self._log is None:
            self._log = self._open_log()
        now = self._clock_ms()
        if now - self._looked_at_ms >= _LOOK_AT_PARTITIONS_MS:
            self._partitions, self._looked_at_ms = self._log.partitions(self._topic), now
        if not self._taken.rows:
            self._taken = self._waiting.take(_MOST_ROWS)
        outputs = list(records_of(self._taken.rows, self._topic, self._partitions))
        clock_ms = self._taken.all_until_ms
        if not self._clock_records or clock_ms is None or clock_ms - self._clock_at_ms < _CLOCK_EVERY_MS:
            clock_ms = None
        if clock_ms is not None:
            value, headers = clock_record(clock_ms - self._lateness_ms)
            outputs += [Outgoing(self._topic, None, value, headers, p) for p in range(self._partitions)]
        if outputs:
            self._log.produce(outputs)
        if clock_ms is not None:
            self._clock_at_ms = clock_ms
        metrics.LIVE_ROWS_WRITTEN.inc(sum(map(len, self._taken.rows)))
        self._let_go()

    def _let_go(self) -> None:
        self._waiting.let_go(self._taken)
        self._taken = Taken([], None)
        metrics.LIVE_ROWS_WAITING.set(self.waiting)

    def _tell_away(self, error: StreamCalibError) -> None:
        if time.monotonic() - self._told_away_s > _TELL_EVERY_S:
            self._told_away_s = time.monotonic()
            _LOG.warning("%d rows wait for %s: %s", self.waiting, self._topic, error, extra={"server": "log"})
