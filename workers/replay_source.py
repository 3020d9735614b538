"""What is replayed: files of JSON lines, or a range of a topic, as chunks of records in their order."""

from __future__ import annotations

import base64
import gzip
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from stream_calib.errors import ConfigurationError
from stream_calib.events.topic_range import Bound, not_before_ms, range_of
from stream_calib.transport.port import Log, Outgoing, Record, TopicPartition
from workers.replay_times import EventTimes
from workers.role import wall_clock_ms

CHUNK_RECORDS, CHUNK_BYTES = 5_000, 16_000_000
"""What is written, or read of a file, at once."""
_READ_RECORDS, _FIRST_READ_RECORDS = 20_000, 500
"""What is read of a partition at once: many, because partitions take turns and each turn costs; but no more than
CHUNK_BYTES by the size of those before."""


class Item(NamedTuple):
    """One record to be written."""

    outgoing: Outgoing
    time_ms: int | None
    """Its event time where it is known, never below that of the records before it in its partition or file."""
    part: int
    """The partition that it comes from; 0 for files."""
    next_place: int
    """Where its part goes on after it: an offset, or a line."""


class Source(ABC):
    """Something to replay, once."""

    total: int
    """How far `progress` goes."""

    @abstractmethod
    def items(self) -> Iterator[Item]:
        """The records; by event time across partitions. Raises ConfigurationError where one cannot be read."""

    @abstractmethod
    def progress(self, done: Mapping[int, int]) -> int:
        """`done`: part -> place reached."""

    @abstractmethod
    def resume_options(self, done: Mapping[int, int]) -> list[str]:
        """The options that go on behind `done`."""


# --- files


class KcatRecord(msgspec.Struct):
    """One line as ``kcat -C -J`` writes it; what is not named here is ignored."""

    payload: str | None = None
    key: str | None = None
    headers: list[str] = []
    """Names and values take turns."""
    partition: int | None = None
    payload_base64: str | None = None
    """For bytes that are not UTF-8."""
    key_base64: str | None = None


class FileSource(Source):
    """Lines of files, one after the other. Progress counts bytes (of the compressed file where it is compressed)."""

    def __init__(self, paths: Sequence[Path], topic: str, times: EventTimes, *, kcat: bool, skip_lines: int) -> None:
        """`kcat`: each line is a record as kcat writes it; else the value itself. Blank lines are skipped.

        Raises ConfigurationError where a file cannot be read.
        """
        self._paths, self._topic, self._times, self._kcat, self._skip = paths, topic, times, kcat, skip_lines
        try:
            self.total = sum(path.stat().st_size for path in paths)
        except OSError as error:
            raise ConfigurationError(f"{error.filename}: cannot be read: {error.strerror}") from error
        self._decode = msgspec.json.Decoder(KcatRecord).decode
        self._bytes_read = 0

    def items(self) -> Iterator[Item]:
        latest, lines = 0, self._lines()
        while chunk := _chunk(lines):
            outgoing = [self._outgoing(where, line) for _, where, line in chunk]
            times = self._times.of([out.value for out in outgoing], [wall_clock_ms()] * len(outgoing))
            for (number, _, _), out, time_ms in zip(chunk, outgoing, times, strict=True):
                latest = max(latest, time_ms or 0)
                yield Item(out, latest or None, 0, number)

    def progress(self, done: Mapping[int, int]) -> int:
        return self._bytes_read

    def resume_options(self, done: Mapping[int, int]) -> list[str]:
        return ["--from", str(done.get(0, self._skip))]

    def _lines(self) -> Iterator[tuple[int, str, bytes]]:
        """Number over all files from 1, file and line for messages, content."""
        number = 0
        for path in self._paths:
            before = self._bytes_read
            try:
                with path.open("rb") as raw:
                    for in_file, line in enumerate(_unpacked(path, raw), 1):
                        number += 1
                        self._bytes_read = before + raw.tell()
                        if number > self._skip and (content := line.strip()):
                            yield number, f"{path}, line {in_file}", content
            except (OSError, EOFError, zlib.error) as error:
                raise ConfigurationError(f"{path}: cannot be read on after line {number} of all: {error}") from error

    def _outgoing(self, where: str, line: bytes) -> Outgoing:
        if not self._kcat:
            return Outgoing(self._topic, None, line)
        try:
            record = self._decode(line)
            if len(record.headers) % 2:
                raise ValueError("its headers are not pairs of name and value")
            names, values = record.headers[::2], record.headers[1::2]
            return Outgoing(
                self._topic,
                _bytes(record.key, record.key_base64),
                _bytes(record.payload, record.payload_base64),
                tuple((name, value.encode()) for name, value in zip(names, values, strict=True)),
                record.partition,
            )
        except ValueError as error:  # msgspec's errors are such, and those of base64
            raise ConfigurationError(f"{where}: not a record as kcat -J writes it: {error}") from error


def _chunk(lines: Iterator[tuple[int, str, bytes]]) -> list[tuple[int, str, bytes]]:
    chunk, size = [], 0
    for line in lines:
        chunk.append(line)
        size += len(line[2])
        if len(chunk) == CHUNK_RECORDS or size >= CHUNK_BYTES:
            break
    return chunk


def _unpacked(path: Path, raw: IO[bytes]) -> Iterable[bytes]:
    return gzip.open(raw) if path.suffix == ".gz" else raw


def _bytes(text: str | None, encoded: str | None) -> bytes | None:
    if encoded is not None:
        return base64.b64decode(encoded, validate=True)
    return None if text is None else text.encode()


# --- topics


class TopicSource(Source):
    """Ranges of a topic's partitions, merged by time, so that records which share a partition afterwards are in order.

    Times of the range are the log's timestamps, see events/topic_range.py; what lies within it but is older than
    `since` is left out.
    """

    def __init__(
        self,
        log: Log,
        topic: str,
        into: str,
        times: EventTimes,
        *,
        since: Sequence[Bound],
        until: Sequence[Bound],
        partitions: Sequence[int],
    ) -> None:
        """`partitions`: only these; all where empty. Raises ConfigurationError where the range is not there,
        TransportError."""
        count = log.partitions(topic)
        wanted = sorted(set(partitions)) or list(range(count))
        named = {bound.partition for bound in (*since, *until) if bound.partition is not None}
        if unknown := sorted((named | set(wanted)) - set(range(count))):
            raise ConfigurationError(f"{topic} has no partition {unknown[0]}: it has {count}, from 0 on")
        self._log, self._topic, self._into, self._times = log, topic, into, times
        self._keep_partition = log.partitions(into) == count
        self._ranges = {p: self._range(p, since, until) for p in wanted}
        self._not_before_ms = not_before_ms(since)
        self._since_text = next((bound.text for bound in since if bound.time_ms is not None), None)
        self.total = sum(end - start for start, end in self._ranges.values())

    def items(self) -> Iterator[Item]:
        parts = [self._partition(p, start, end) for p, (start, end) in self._ranges.items()]
        return merge(*parts, key=lambda item: item.time_ms or 0)

    def progress(self, done: Mapping[int, int]) -> int:
        return sum(min(done[p], end) - start for p, (start, end) in self._ranges.items() if p in done)

    def resume_options(self, done: Mapping[int, int]) -> list[str]:
        options = [] if self._since_text is None else ["--from", self._since_text]
        for partition, (start, end) in self._ranges.items():
            options += ["--from", f"{partition}:{done.get(partition, start)}", "--until", f"{partition}:{end}"]
        if set(self._ranges) != set(range(self._log.partitions(self._topic))):
            options += [text for p in self._ranges for text in ("--partition", str(p))]
        return options

    def _range(self, partition: int, since: Sequence[Bound], until: Sequence[Bound]) -> tuple[int, int]:
        source = TopicPartition(self._topic, partition)
        found = range_of(self._log, source, since, until)
        first, (start, end) = found.first, found.wanted
        if start < first < found.last:
            raise ConfigurationError(
                f"{source} begins at {first} now: {first - start} offsets from {start} on are gone; to go on without"
                f" them, say --from {partition}:{first}"
            )
        return start, end

    def _partition(self, partition: int, start: int, end: int) -> Iterator[Item]:
        source, latest = TopicPartition(self._topic, partition), 0
        asked = _FIRST_READ_RECORDS
        while start < end and (records := self._log.read(source, start, min(asked, end - start))):
            start = records[-1].offset + 1
            size = sum(len(record.value or b"") for record in records) / len(records)
            asked = min(_READ_RECORDS, int(CHUNK_BYTES / max(size, 1)) + 1)
            kept = [record for record in records if self._is_kept(record, end)]
            taken_ms = [record.append_time_ms for record in kept]
            times = self._times.of([record.value for record in kept], taken_ms) if self._times.known else taken_ms
            for record, time_ms in zip(kept, times, strict=True):
                latest = max(latest, time_ms or 0)
                out = Outgoing(
                    self._into,
                    record.key,
                    record.value,
                    record.headers,
                    partition if self._keep_partition else None,
                )
                yield Item(out, latest, partition, record.offset + 1)

    def _is_kept(self, record: Record, end: int) -> bool:
        old = self._not_before_ms is not None and record.append_time_ms < self._not_before_ms
        return record.offset < end and not old
