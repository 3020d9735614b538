"""One partition on its way through a range: read and decoded batch by batch, the same ones in whichever process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from stream_calib.config import Config
from stream_calib.events.contracts import ModelKey
from stream_calib.events.label_decoder import LabelDecoder
from stream_calib.transport.port import Log, OffsetRange, Record, TopicPartition
from stream_calib.windows.input_batch import Records
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.read_inputs import ReadBlocks, ReadInput, ReadLabels, Signatures

_FIRST_RECORDS, _MOST_RECORDS = 200, 50_000
_READ_BYTES = 4_000_000
"""A client fetches anew where the partition was another one before, so it should be more than a fetch."""
_ALL_BYTES = 256_000_000
"""Of all partitions' batches together, each of which is held a few times (reader_process.AHEAD)."""


class PartitionPlan(NamedTuple):
    """What is to be read of a partition."""

    input_key: str
    source: TopicPartition
    wanted: OffsetRange
    not_before_ms: int | None
    """Records that the log took before it are left out; None: none are."""
    read_bytes: int = _READ_BYTES
    """What is read of it at once, by the size of the records before."""


def read_bytes_of_each(partitions: int) -> int:
    """What may be read at once of each of so many partitions."""
    return min(_READ_BYTES, _ALL_BYTES // max(partitions, 1))


class ReadBatch(NamedTuple):
    """What one read came to, for one model key."""

    records: Records
    signatures: Signatures
    held: int
    """Records that the log has between `records.start` and `records.end`, those that are left out too."""
    rejects: Mapping[str, int]
    """Reason -> records."""


class Readings(ABC):
    """Gives the next batch of whichever partition is asked for."""

    @abstractmethod
    def next(self, place: int) -> ReadBatch:
        """Of the plan at that place. Not to be called once its range has been given. Raises TransportError,
        HistoryError."""

    @abstractmethod
    def close(self) -> None:
        """Can be called again."""


class PartitionReading:
    """One plan. Batches are as long as the sizes of the records before say, whatever the time they take."""

    def __init__(
        self, log: Log, plan: PartitionPlan, key: ModelKey, decoder: LabelDecoder, settings: PaneSettings
    ) -> None:
        self._log, self._plan, self._key, self._decoder, self._settings = log, plan, key, decoder, settings
        self._next = plan.wanted.start
        self._asked = _FIRST_RECORDS

    @property
    def unread(self) -> bool:
        return self._next < self._plan.wanted.end

    def next(self) -> ReadBatch:
        end, start = self._plan.wanted.end, self._next
        found = self._log.read(self._plan.source, start, self._asked)
        records = found if found and found[-1].offset < end else [record for record in found if record.offset < end]
        # Nothing up to the end that was asked for before: offsets without records.
        span = OffsetRange(start, records[-1].offset + 1 if records else end)
        self._next = span.end
        if records:
            size = sum([len(record.value or b"") for record in records]) / len(records)
            self._asked = min(_MOST_RECORDS, int(self._plan.read_bytes / max(size, 1)) + 1)
        held, since_ms = len(records), self._plan.not_before_ms
        if since_ms is not None:
            records = [record for record in records if record.append_time_ms >= since_ms]
        read = self._decoded(records, span)
        rejects = Counter(reject.reason.value for reject in read.rejects)
        return ReadBatch(read.of(self._key), read.signatures(self._key), held, rejects)

    def _decoded(self, records: Sequence[Record], span: OffsetRange) -> ReadInput:
        if self._plan.input_key.startswith("l:"):
            return ReadLabels(records, span, self._decoder, self._settings)
        return ReadBlocks(records, span, self._settings.max_clock_skew_ms)


def partition_readings(
    log: Log, plans: Iterable[PartitionPlan], config: Config, key: ModelKey
) -> list[PartitionReading]:
    """One for each plan, for one thread."""
    decoder, settings = LabelDecoder(config), PaneSettings.of(config)
    return [PartitionReading(log, plan, key, decoder, settings) for plan in plans]


class OwnReadings(Readings):
    """In this process, when it is asked for."""

    def __init__(self, readings: Sequence[PartitionReading]) -> None:
        self._readings = readings

    def next(self, place: int) -> ReadBatch:
        return self._readings[place].next()

    def close(self) -> None:
        """The log is the caller's."""
