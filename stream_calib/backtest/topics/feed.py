"""A model key's own topics as a feed: ranges of `blocks`, `live_blocks` and `labels`, read outside of any group.

Nothing is committed, written or joined, and what was aborted is not seen. Read from where the model key began, or from
the beginning of a log of which nothing is gone, the feed is what the monitor has read: an *exact* one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stream_calib.backtest.feed import Feed, FeedBatch
from stream_calib.backtest.history import Start
from stream_calib.backtest.topics.partition_reading import (
    OwnReadings,
    PartitionPlan,
    ReadBatch,
    Readings,
    partition_readings,
    read_bytes_of_each,
)
from stream_calib.backtest.topics.reader_processes import ReaderProcesses, processes_for
from stream_calib.config import Config
from stream_calib.errors import ConfigurationError, HistoryError, HistoryGapError
from stream_calib.events.contracts import ModelKey
from stream_calib.events.topic_range import Bound, PartitionRange, not_before_ms, range_of
from stream_calib.transport.port import Log, OffsetRange, TopicPartition
from stream_calib.windows.input_batch import Records
from stream_calib.windows.input_partitions import InputPartitions
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.shard_store import Mark

RETAINED_AWAY, WITHOUT_RECORD = "retained_away", "without_record"
"""Reasons of `rejects` for offsets of a range: the log holds what is behind them only; a topic that is compacted has no
record there (that is where transactions end, too)."""


@dataclass
class _Part:
    """One partition on its way through the range."""

    source: TopicPartition
    input_key: str
    range: PartitionRange
    next: int
    compacted: bool
    clock_ms: int = -1
    """As far as it is known here, for pacing."""

    @property
    def unread(self) -> bool:
        return self.next < self.range.wanted.end


class TopicFeed(Feed):
    """The records of one model key, in the order of each partition.

    Many records of a log that other processes can open are read by processes of its own (reader_processes.py), which
    are started anew: the script that runs it needs ``if __name__ == "__main__"``.
    """

    def __init__(
        self,
        log: Log,
        config: Config,
        key: ModelKey,
        *,
        begin: Mapping[str, Mark] | None = None,
        since: Mapping[str, Sequence[Bound]] | None = None,
        until: Mapping[str, Sequence[Bound]] | None = None,
        allow_gaps: bool = False,
    ) -> None:
        """`begin`: input key -> first mark, as the model key's state has them on record (recorded_inputs): exactly
        these inputs are read from there on. `since`, `until`: topic -> bounds of its range, see `feed_bounds`; not
        together with `begin`. `allow_gaps`: go on where parts of the range are gone; they are counted in `rejects`.

        Raises HistoryError where there is nothing to read, HistoryGapError where parts are gone, TransportError.
        """
        self._log, self._config, self._key, self._allow_gaps = log, config, key, allow_gaps
        self._settings = PaneSettings.of(config)
        self._readings: Readings | None = None
        self._max_input_skew_ms = config.windows.max_input_skew_ms
        self._counts = Counter[str]()
        self._bounded = bool(since) or bool(until)
        self._not_before = {topic: not_before_ms(bounds) for topic, bounds in (since or {}).items()}
        partitions = InputPartitions(log, config)
        self._sides = partitions.sides
        wanted = {input_key: partition for partition, input_key in partitions.keys.items()}
        if begin is not None:
            _refuse_unknown(begin, wanted)
            wanted = {input_key: wanted[input_key] for input_key in begin}
        compacted = {topic: _is_compacted(log, topic) for topic in partitions.topics}
        self._parts: list[_Part] = []
        starts: dict[str, Mark] = {}
        for input_key, source in sorted(wanted.items()):
            bounds = (since or {}).get(source.topic, ()), (until or {}).get(source.topic, ())
            found = range_of(log, source, *bounds)
            mark = Mark(found.wanted.start, None)
            if begin is not None:
                mark = begin[input_key]
                found = found._replace(wanted=OffsetRange(mark.next, max(mark.next, found.wanted.end)))
            elif not self._bounded:
                found = found._replace(wanted=OffsetRange(0, found.wanted.end))
                mark = Mark(0, None)
            # A partition without a record of the range takes no part in it. From the beginning on it does, as live.
            if self._bounded and found.wanted.start >= found.wanted.end:
                continue
            self._parts.append(_Part(source, input_key, found, found.wanted.start, compacted[source.topic]))
            self._gone(source, found)
            starts[input_key] = mark
        self._starts = starts
        for side, what in (("s", "scores"), ("l", "labels")):
            if not any(part.input_key.startswith(side) and part.unread for part in self._parts):
                topics = " and ".join(topic for topic, its in self._sides.items() if its == side)
                raise HistoryError(f"{topics}: no record of the range, so there are no {what} to replay")

    @property
    def source(self) -> str:
        texts = []
        for topic in self._sides:
            if parts := [part for part in self._parts if part.source.topic == topic]:
                offsets = sum(part.range.wanted.end - part.range.wanted.start for part in parts)
                many, more = "s" * (len(parts) != 1), "s" * (offsets != 1)
                texts.append(f"{topic} ({len(parts)} partition{many}, {offsets:,} offset{more})")
        return f"topics {' and '.join(texts)}"

    @property
    def start(self) -> Start:
        """Exact as long as nothing of what the model key has read was left out."""
        return "cold" if self._bounded or self._counts[RETAINED_AWAY] or self._counts[WITHOUT_RECORD] else "exact"

    @property
    def starts(self) -> Mapping[str, Mark]:
        return self._starts

    @property
    def rejects(self) -> Mapping[str, int]:
        return {reason: n for reason, n in sorted(self._counts.items()) if n}

    @property
    def at_end(self) -> frozenset[str]:
        return frozenset(part.input_key for part in self._parts if not part.unread)

    def batches(self) -> Iterator[FeedBatch]:
        place = {part.input_key: i for i, part in enumerate(self._parts)}
        self._readings = self._opened()
        while reach := self._within_reach():
            for part in reach:
                yield self._read(part, self._readings.next(place[part.input_key]))

    def progress(self) -> tuple[int, int]:
        done = sum(part.next - part.range.wanted.start for part in self._parts)
        return done, sum(part.range.wanted.end - part.range.wanted.start for part in self._parts)

    def close(self) -> None:
        """The log is the caller's."""
        if self._readings is not None:
            self._readings.close()

    # --- reading

    def _within_reach(self) -> list[_Part]:
        """Parts with unread records that are not too far ahead of the slowest of them."""
        unread = [part for part in self._parts if part.unread]
        reach = min((part.clock_ms for part in unread), default=0) + self._max_input_skew_ms
        return [part for part in unread if part.clock_ms <= reach]

    def _opened(self) -> Readings:
        at_once = read_bytes_of_each(len(self._parts))
        plans = [
            PartitionPlan(p.input_key, p.source, p.range.wanted, self._not_before.get(p.source.topic), at_once)
            for p in self._parts
        ]
        opener, processes = self._log.opener(), processes_for(plans)
        if opener is None or not processes:
            return OwnReadings(partition_readings(self._log, plans, self._config, self._key))
        return ReaderProcesses(opener, self._config, self._key, plans, processes)

    def _read(self, part: _Part, read: ReadBatch) -> FeedBatch:
        span = OffsetRange(part.next, read.records.end)
        part.next = span.end
        if part.compacted:
            self._holes(part, span, read.held)
        self._counts.update(read.rejects)
        part.clock_ms = max(part.clock_ms, self._clock_of(part.input_key[0], read.records))
        return FeedBatch(part.input_key, read.records, read.signatures)

    def _clock_of(self, side: str, records: Records) -> int:
        """What the records move a clock to, for pacing only: nothing is judged by it."""
        time_ms, taken_ms = records.rows.event_time_ms, records.append_time_ms[records.row_record]
        skew_ms = self._settings.clock_skew_ms(side)
        if side == "l" and self._settings.broker_clock:
            time_ms = taken_ms
        elif skew_ms is not None:
            time_ms = time_ms[time_ms <= taken_ms + skew_ms]
        return max(int(time_ms.max(initial=-1)), int(records.clock_time_ms.max(initial=-1)))

    # --- what is gone

    def _gone(self, source: TopicPartition, found: PartitionRange) -> None:
        if not found.gone:
            return
        self._counts[RETAINED_AWAY] += found.gone
        if not self._allow_gaps:
            raise HistoryGapError(
                f"{source} begins at {found.first} by now: {found.gone} offsets from {found.wanted.start} on are gone,"
                " so what the model key has counted cannot be counted again; begin later, or allow gaps: the history is"
                " cold then"
            )

    def _holes(self, part: _Part, span: OffsetRange, records: int) -> None:
        holes = span.end - max(span.start, part.range.first) - records
        if holes <= 0:
            return
        self._counts[WITHOUT_RECORD] += holes
        if not self._allow_gaps:
            raise HistoryGapError(
                f"{part.source} is compacted: {holes} of the offsets {span.start} to {span.end - 1} have no record any"
                " more (or end a transaction), so what the model key has counted cannot be counted again; allow gaps to"
                " go on with what is left"
            )


def feed_bounds(texts: Sequence[str], config: Config) -> dict[str, list[Bound]]:
    """Topic -> bounds, from texts as people give them: a time (``2024-05-01T00:00Z``) is one of every topic, an offset
    names its topic by its purpose, ``labels:1200`` or ``blocks:3:1200`` (partition 3).

    Raises HistoryError where a text is neither.
    """
    topics = {"blocks": config.topics.blocks, "labels": config.topics.labels, "live_blocks": config.topics.live_blocks}
    named = {purpose: topic for purpose, topic in topics.items() if topic is not None}
    found: dict[str, list[Bound]] = {}
    for text in texts:
        purpose, colon, rest = text.partition(":")
        topic = named.get(purpose) if colon else None
        try:
            bound = Bound.parse(text if topic is None else rest)
        except ConfigurationError as error:
            raise HistoryError(str(error)) from error
        if topic is None and bound.offset is not None:
            raise HistoryError(
                f"{text!r}: an offset is one of a topic; say {', '.join(f'{p}:{text}' for p in named)}, or give a time"
            )
        for one in named.values() if topic is None else (topic,):
            found.setdefault(one, []).append(bound)
    return found


def _refuse_unknown(begin: Mapping[str, Mark], wanted: Mapping[str, TopicPartition]) -> None:
    if missing := sorted(begin.keys() - wanted.keys()):
        raise HistoryError(
            f"the log has no input {missing[0]}, which the model key has read: a topic was deleted, made anew or"
            " renamed since; what was in it cannot be replayed"
        )


def _is_compacted(log: Log, topic: str) -> bool:
    settings = log.topic_settings(topic) or {}
    return "compact" in settings.get("cleanup.policy", "")
