"""Ranges of a topic's partitions, given by offsets or by times of the log."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from stream_calib.errors import ConfigurationError
from stream_calib.events.event_times import iso8601_ms
from stream_calib.transport.port import Log, OffsetRange, TopicPartition


class Bound(NamedTuple):
    """One end of a range: a time (of the log's own timestamps), or an offset; for one partition or for all."""

    text: str
    """As it was given."""
    partition: int | None = None
    offset: int | None = None
    time_ms: int | None = None

    @classmethod
    def parse(cls, text: str) -> Bound:
        """``2024-05-01T00:00Z``, ``1200``, or ``3:1200`` (partition 3). Raises ConfigurationError."""
        if match := re.fullmatch(r"(?:([0-9]+):)?([0-9]+)", text):
            return cls(text, None if match[1] is None else int(match[1]), int(match[2]))
        time_ms = iso8601_ms(text)
        if time_ms is None:
            raise ConfigurationError(
                f"{text!r} is neither an offset (1200, or 3:1200 for partition 3) nor a time (2024-05-01T00:00Z)"
            )
        return cls(text, time_ms=time_ms)


class PartitionRange(NamedTuple):
    """What a partition gives of a range, beside what the log still holds of it."""

    first: int
    """Offset at which what the log holds begins."""
    last: int
    """The end of the log."""
    wanted: OffsetRange
    """As the bounds say. It may begin before `first`, then those records are gone; it does not end behind `last`."""

    @property
    def gone(self) -> int:
        """Offsets of the range that the log has no more."""
        return max(0, min(self.first, self.wanted.end) - self.wanted.start)


def range_of(log: Log, source: TopicPartition, since: Sequence[Bound], until: Sequence[Bound]) -> PartitionRange:
    """A partition begins at its first record of the time `since` or later, and ends before its first of `until` or
    later; one that has no such record gives none. What lies between, but is older than `since`, is to be left out by
    who reads (`not_before_ms`). Raises TransportError."""
    first, last = log.offset_at(source, 0), log.end_offset(source)
    start, end = _place(log, source, since, first), _place(log, source, until, last)
    return PartitionRange(first, last, OffsetRange(start, max(start, min(end, last))))


def not_before_ms(since: Sequence[Bound]) -> int | None:
    """Times of the log below it are left out inside a range, too: producers' clocks differ."""
    return next((bound.time_ms for bound in since if bound.time_ms is not None), None)


def _place(log: Log, source: TopicPartition, bounds: Sequence[Bound], default: int) -> int:
    """A bound for the partition itself counts before one for all."""
    for bound in sorted(bounds, key=lambda b: b.partition is None):
        if bound.partition in (None, source.partition):
            return bound.offset if bound.offset is not None else log.offset_at(source, bound.time_ms or 0)
    return default
