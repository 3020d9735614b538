"""Writing records into a topic again: as fast as it goes, at a rate, or by their event times; stopped at any moment,
with the place told from which to go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from stream_calib.events.contracts import CONTROL_HEADER
from stream_calib.events.control import clock_record
from stream_calib.transport.port import Log, Outgoing
from workers.replay_source import CHUNK_BYTES, CHUNK_RECORDS, Item, Source

_BEAT_S = 0.05
"""A paced replay writes about so often."""


@dataclass(frozen=True, slots=True)
class Pace:
    """At most one is set; none: as fast as it goes."""

    events_per_s: float | None = None
    times_event_time: float | None = None

    def due(self, written: int, first_ms: int | None, item: Item) -> float:
        """Seconds after the start at which the item is due, `written` items after the first."""
        if self.events_per_s is not None:
            return written / self.events_per_s
        if self.times_event_time is not None and item.time_ms is not None and first_ms is not None:
            return (item.time_ms - first_ms) / 1_000 / self.times_event_time
        return 0.0


@dataclass(slots=True)
class Replayed:
    """How far a replay came."""

    written: int = 0
    left_out: int = 0
    """Control records of another number of partitions."""
    first_ms: int | None = None
    last_ms: int | None = None
    """Event times of the first and the latest record written."""
    done: dict[int, int] = field(default_factory=dict)
    """Part of the source -> place behind the last record that the log has."""
    finished: bool = False


class Replay:
    """One replay into a topic. `run` may be stopped from another thread or a signal handler by `stop`."""

    def __init__(self, log: Log, topic: str, source: Source, pace: Pace, stop: threading.Event) -> None:
        self._log, self._topic, self._source, self._pace, self._stop = log, topic, source, pace, stop
        self.state = Replayed()

    def run(self, seen: Callable[[Replayed], None]) -> None:
        """Until the source's end or `stop`; `seen` is called after each write. Whatever it raises, `state` says what
        the log has; a write that failed may have been taken all the same, so going on may repeat some records."""
        items, started = self._source.items(), time.monotonic()
        batch: list[Item] = []
        size = 0
        for item in items:
            if self.state.first_ms is None:
                self.state.first_ms = item.time_ms
            due = self._pace.due(self.state.written + len(batch), self.state.first_ms, item)
            early_s = started + due - time.monotonic()
            if batch and (early_s > 0 or len(batch) >= CHUNK_RECORDS or size >= CHUNK_BYTES):
                self._write(batch, seen)
                batch, size = [], 0
            # A little early, so that records come in batches and not one by one.
            if early_s > 0 and self._stop.wait(early_s + _BEAT_S):
                return
            if self._stop.is_set():
                break
            batch.append(item)
            size += len(item.outgoing.value or b"")
        else:
            self.state.finished = True
        if batch:
            self._write(batch, seen)

    def write_clocks(self, kind: Literal["last", "end"]) -> int:
        """A control record at the latest event time to each partition of the topic; returns the time.

        ``end`` closes the partitions: nothing is to come.
        """
        assert self.state.last_ms is not None, "nothing with a time was written"
        value, headers = clock_record(self.state.last_ms, end=kind == "end")
        partitions = range(self._log.partitions(self._topic))
        self._log.produce([Outgoing(self._topic, None, value, headers, p) for p in partitions])
        return self.state.last_ms

    def _write(self, batch: list[Item], seen: Callable[[Replayed], None]) -> None:
        outgoing = list(_writable(batch))
        self._log.produce(outgoing)
        state = self.state
        state.written += len(outgoing)
        state.left_out += len(batch) - len(outgoing)
        times = [item.time_ms for item in batch if item.time_ms is not None]
        state.last_ms = max([*times, state.last_ms or 0]) or None
        state.done |= {item.part: item.next_place for item in batch}
        seen(state)


def _writable(batch: list[Item]) -> Iterator[Outgoing]:
    """Without control records that lost their partition: they speak of one, and elsewhere would be untrue."""
    for item in batch:
        out = item.outgoing
        if out.partition is not None or all(name != CONTROL_HEADER for name, _ in out.headers):
            yield out
