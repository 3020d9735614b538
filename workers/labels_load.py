"""Loading files of labels into the labels topic: sorted into the order of their times, so that none makes the others
late, and closed by a clock record for each partition, so that partitions that got few go on too.

Values wait in a temporary file while their times are sorted; what stays in memory is 28 bytes a label.
"""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import IO

import numpy as np

from stream_calib.config import Config
from stream_calib.events.columns import column
from stream_calib.events.control import clock_record
from stream_calib.events.event_ids import read_ids
from stream_calib.events.json_decoding import BadJson, JsonDecoder
from stream_calib.events.label_decoder import LabelDecoder
from stream_calib.transport.port import Log, Outgoing, Record, TopicPartition
from stream_calib.windows.panes import PaneSettings
from workers.label_files import LabelFiles, LabelRow

_CHUNK = 5_000
_CHUNK_BYTES = 8_000_000
_EXAMPLES = 5


@dataclass(slots=True)
class Loaded:
    """How far a load came."""

    read: int = 0
    """Rows of the files."""
    accepted: int = 0
    """Of them, labels."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Rows that are no labels, by reason code."""
    examples: list[str] = field(default_factory=list)
    """The first of them, in words."""
    skewed: int = 0
    """Labels dated further in the future than windows.max_clock_skew: the monitor will not count them."""
    first_ms: int | None = None
    last_ms: int | None = None
    """Times of the oldest and the newest label that is not skewed."""
    written: int = 0
    clock_ms: int | None = None
    """What the clock records say, once they are written."""


class LabelsLoad:
    """One load. `stop` ends it behind the batch at hand."""

    def __init__(
        self,
        config: Config,
        files: LabelFiles,
        values: IO[bytes],
        clock_ms: Callable[[], int],
        stop: threading.Event,
    ) -> None:
        """`values`: an empty temporary file. `clock_ms`: wall time."""
        self._files, self._values, self._clock_ms, self._stop = files, values, clock_ms, stop
        self._topic, self._id_path = config.topics.labels, config.labels.id
        # Of a label without a time of its own, when it is loaded is its time; so it is under the broker clock too.
        self._by_wall = config.labels.clock == "broker" or config.labels.time.path is None
        self._skew_ms = PaneSettings.of(config).clock_skew_ms("l")
        self._decoder = LabelDecoder(config)
        self._max_bytes = config.records.max_record_bytes
        self._json = JsonDecoder(self._max_bytes, config.records.max_depth)
        self._times, self._places, self._keys = array("q"), array("q"), array("i")
        self.state = Loaded()

    def read(self, seen: Callable[[], None]) -> bool:
        """Reads all files; `seen` is called now and then. False where it was stopped. Raises ConfigurationError."""
        for chunk in _chunks(self._files.rows(self._max_bytes)):
            if self._stop.is_set():
                return False
            self._take(chunk)
            seen()
        self._places.append(self._values.tell())
        return True

    def _take(self, rows: list[LabelRow]) -> None:
        now_ms = self._clock_ms()
        source, state = TopicPartition(self._topic, 0), self.state
        decoded = self._decoder.decode([Record(source, i, None, row.value, (), now_ms) for i, row in enumerate(rows)])
        assert decoded.labels is not None
        state.read += len(rows)
        for reject in decoded.rejects:
            state.rejected[reject.reason.value] += 1
            if len(state.examples) < _EXAMPLES:
                row = rows[reject.record_index]
                state.examples.append(f"{self._files.paths[row.file]}, line {row.line}: {reject.message}")
        good = [rows[i].value for i in decoded.labels.record_index.tolist()]
        objects = [{} if isinstance(found, BadJson) else found for found in self._json.decode_all(good)]
        ids, _ = read_ids(column(objects, self._id_path), self._id_path)
        for event_id, value, time_ms in zip(ids, good, decoded.labels.event_time_ms.tolist(), strict=True):
            key = event_id.encode()
            self._times.append(time_ms)
            self._places.append(self._values.tell())
            self._keys.append(len(key))
            self._values.write(key + value)
            if self._skew_ms is not None and not self._by_wall and time_ms > now_ms + self._skew_ms:
                state.skewed += 1
            else:
                state.first_ms = time_ms if state.first_ms is None else min(state.first_ms, time_ms)
                state.last_ms = time_ms if state.last_ms is None else max(state.last_ms, time_ms)
        state.accepted += len(good)

    def write(self, log: Log, seen: Callable[[], None]) -> bool:
        """Writes what was read, and then the clock records; False where it was stopped. Raises TransportError: what
        was being written then may be there already."""
        outgoing = self._in_order()
        while chunk := list(islice(outgoing, _CHUNK)):
            if self._stop.is_set():
                return False
            log.produce(chunk)
            self.state.written += len(chunk)
            seen()
        clock_ms = self._clock_ms() if self._by_wall else self.state.last_ms
        if clock_ms is not None and self.state.accepted:
            value, headers = clock_record(clock_ms)
            partitions = range(log.partitions(self._topic))
            log.produce([Outgoing(self._topic, None, value, headers, p) for p in partitions])
            self.state.clock_ms = clock_ms
        return True

    def _in_order(self) -> Iterator[Outgoing]:
        places, keys = np.frombuffer(self._places, dtype=np.int64), np.frombuffer(self._keys, dtype=np.int32)
        times = np.frombuffer(self._times, dtype=np.int64)
        order = np.argsort(times, kind="stable") if len(times) else np.empty(0, dtype=np.intp)
        for first in range(0, len(order), _CHUNK):
            for i in order[first : first + _CHUNK].tolist():
                self._values.seek(int(places[i]))
                stored = self._values.read(int(places[i + 1] - places[i]))
                yield Outgoing(self._topic, stored[: keys[i]], stored[keys[i] :])


def _chunks(rows: Iterator[LabelRow]) -> Iterator[list[LabelRow]]:
    """Of so many rows, or fewer where these are large."""
    chunk, size = [], 0
    for row in rows:
        chunk.append(row)
        size += len(row.value)
        if len(chunk) == _CHUNK or size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
