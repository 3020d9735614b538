"""What was served and waits to be written: a bounded queue of rows, and how they become records of blocks."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_calib.events.blocks import blocks_of
from stream_calib.events.contracts import ModelKey, ScoreBatch
from stream_calib.events.identity import sampled
from stream_calib.live.request_rows import NOW, RequestRows
from stream_calib.transport.port import Outgoing

_REQUEST_BYTES, _ROW_BYTES, _SIGNATURE_BYTES = 1_000, 42, 250
"""What they take in memory, about: the objects of a request, its columns a row, attribute values."""


@dataclass(frozen=True, slots=True)
class ServedRows:
    """k events of one request, as served."""

    key: ModelKey
    snapshot: str
    """Version; "" for the raw score."""
    fingerprint: NDArray[np.uint64]
    """(k,)"""
    event_time_ms: NDArray[np.int64]
    """(k,) epoch milliseconds, or NOW."""
    score: NDArray[np.float64]
    """(k,) in [0, 1]."""
    signature_index: NDArray[np.intp]
    """(k,) index into `signatures`."""
    signatures: list[tuple[str, ...]]
    unit_bucket: NDArray[np.uint8]
    """(k,)"""
    probability: NDArray[np.float64]
    """(k,) as served."""

    def __len__(self) -> int:
        return len(self.score)

    @property
    def memory_bytes(self) -> int:
        """About so much is taken while they wait."""
        return _REQUEST_BYTES + _ROW_BYTES * len(self) + _SIGNATURE_BYTES * len(self.signatures)

    @classmethod
    def of(
        cls, key: ModelKey, snapshot: str, rows: RequestRows, served: NDArray[np.float64], sample_rate: float = 1.0
    ) -> ServedRows:
        """The good rows, as far as they are in the sample, of a request that has ids; `served` (k,): the probabilities
        of all good rows."""
        assert rows.fingerprint is not None
        assert rows.unit_bucket is not None
        chosen = sampled(rows.fingerprint[rows.good], sample_rate)
        good, served = rows.good[chosen], served[chosen]
        return cls(
            key,
            snapshot,
            rows.fingerprint[good],
            rows.event_time_ms[good],
            rows.score[good],
            rows.signature_index[good],
            rows.signatures,
            rows.unit_bucket[good],
            served,
        )


class Taken(NamedTuple):
    """What is to be written next."""

    rows: list[ServedRows]
    all_until_ms: int | None
    """Wall time up to which nothing else waits; None where something does."""


class WaitingRows:
    """A first-in first-out queue that takes at most `max_bytes` of memory. Thread-safe."""

    def __init__(self, max_bytes: int, clock_ms: Callable[[], int]) -> None:
        """`clock_ms`: wall time."""
        self._max_bytes, self._clock_ms = max_bytes, clock_ms
        self._queue: deque[ServedRows] = deque()
        self._count = self._bytes = 0
        self._closed = False
        self._changed = threading.Condition()
        self._wake_at: float = 0

    def __len__(self) -> int:
        """Rows that wait."""
        return self._count

    def put(self, rows: ServedRows) -> bool:
        """False, and nothing is kept, where there is no room for all of them, or no more are taken.

        Events without a time of their own get one here, where it cannot be behind a clock: see `take`.
        """
        with self._changed:
            if self._closed or self._bytes + rows.memory_bytes > self._max_bytes:
                return False
            if (rows.event_time_ms == NOW).any():
                now = self._clock_ms()
                rows = replace(rows, event_time_ms=np.where(rows.event_time_ms == NOW, now, rows.event_time_ms))
            self._queue.append(rows)
            self._count += len(rows)
            self._bytes += rows.memory_bytes
            if self._count >= self._wake_at:  # else each request would wake the writer
                self._changed.notify_all()
            return True

    def take(self, most_rows: int) -> Taken:
        """The oldest rows, about `most_rows`, and until when that is all. They count as waiting until `let_go`."""
        with self._changed:
            taken: list[ServedRows] = []
            count = 0
            while self._queue and count < most_rows:
                taken.append(self._queue.popleft())
                count += len(taken[-1])
            return Taken(taken, None if self._queue else self._clock_ms())

    def let_go(self, taken: Taken) -> None:
        """What was taken needs no room any more."""
        with self._changed:
            self._count -= sum(map(len, taken.rows))
            self._bytes -= sum(rows.memory_bytes for rows in taken.rows)

    def wait_for_batch(self, rows: int, timeout_s: float) -> None:
        """Returns when so many rows wait, after the time, or once the queue is closed."""
        with self._changed:
            self._wake_at = rows
            self._changed.wait_for(lambda: self._closed or self._count >= rows, timeout_s)

    def wait_for_close(self, timeout_s: float) -> None:
        """Returns after the time, or once the queue is closed."""
        with self._changed:
            self._wake_at = float("inf")
            self._changed.wait_for(lambda: self._closed, timeout_s)

    def close(self) -> None:
        """No more rows are taken in; who waits is woken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def records_of(rows: Sequence[ServedRows], topic: str, partitions: int) -> Iterator[Outgoing]:
    """Blocks of the rows, each in the partition that its event id always has (while their number stands)."""
    alike: dict[tuple[ModelKey, str], list[ServedRows]] = defaultdict(list)
    for one in rows:
        alike[one.key, one.snapshot].append(one)
    for (key, snapshot), parts in alike.items():
        batch, served = _merged(key, parts)
        partition_of = batch.fingerprint % np.uint64(partitions)
        for partition in np.unique(partition_of).tolist():
            for block in blocks_of(batch, np.flatnonzero(partition_of == partition), key, snapshot, served):
                yield Outgoing(topic, None, block, (), partition)


def _merged(key: ModelKey, parts: Sequence[ServedRows]) -> tuple[ScoreBatch, NDArray[np.float64]]:
    """One batch of all rows, and the probabilities (n,) served."""
    places: dict[tuple[str, ...], int] = {}
    index = []
    for part in parts:
        place = np.array([places.setdefault(s, len(places)) for s in part.signatures], dtype=np.intp)
        index.append(place[part.signature_index])
    n = sum(map(len, parts))
    batch = ScoreBatch(
        record_index=np.arange(n),
        keys=[key],
        key_index=np.zeros(n, dtype=np.intp),
        event_id=[],  # a block holds fingerprints
        fingerprint=np.concatenate([part.fingerprint for part in parts]),
        event_time_ms=np.concatenate([part.event_time_ms for part in parts]),
        score=np.concatenate([part.score for part in parts]),
        signature_index=np.concatenate(index),
        signatures=list(places),
        unit_bucket=np.concatenate([part.unit_bucket for part in parts]),
        refused=[],
    )
    return batch, np.concatenate([part.probability for part in parts])
