"""A group member that reads through librdkafka: fair polls, positions, one commit for outputs and positions."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Position

from stream_calib import fault_points
from stream_calib.errors import AnotherProcessError, TransportError
from stream_calib.transport.fetch_buffers import Buffer, take_fairly
from stream_calib.transport.kafka_positions import HeldBack, positions_lost, refuse_what_was_not_read
from stream_calib.transport.librdkafka_errors import UNKNOWN_TOPIC, is_fatal, transport_error
from stream_calib.transport.librdkafka_member import GroupMember, Reading
from stream_calib.transport.librdkafka_records import split
from stream_calib.transport.librdkafka_topics import TopicCatalogue
from stream_calib.transport.librdkafka_writer import PlainWriter, TransactionalWriter
from stream_calib.transport.port import Consumer, OffsetRange, Outgoing, PolledBatch, Record, StartAt, TopicPartition

_LOG = logging.getLogger(__name__)

_LEAST_TAKEN = 1_000
_SLICE_S = 0.05


class LibrdkafkaConsumer(Consumer):
    """See `Consumer`."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        catalogue: TopicCatalogue,
        writer: TransactionalWriter | PlainWriter,
        topics: Sequence[str],
        start: StartAt,
        look_every_ms: int,
    ) -> None:
        """`settings` of the client; `writer` is closed with the consumer; `look_every_ms`: at most so long until a
        recreated topic is noticed."""
        self._member = GroupMember(settings, catalogue, topics, start, look_every_ms, self._forget_assignment)
        self._catalogue = catalogue
        self._writer = writer
        self._buffers: dict[TopicPartition, Buffer] = {}
        self._seeks: dict[TopicPartition, int] = {}
        self._unsettled: set[TopicPartition] = set()
        self._lost: set[TopicPartition] = set()
        self._paused: frozenset[TopicPartition] = frozenset()
        self._pauses_due = False
        self._held_back = HeldBack()
        self._turn = 0
        self._spans: dict[TopicPartition, OffsetRange] = {}
        """What the poll that is under way has passed so far, by the assignment in force."""

    def poll(self, max_records: int, timeout_ms: int) -> PolledBatch:
        deadline = time.monotonic() + timeout_ms / 1_000
        self._settle()
        self._spans = {}
        wait_s = 0.0
        while True:
            self._fetch(max_records, wait_s)
            self._settle()
            records, ranges = take_fairly(self._buffers, self._paused, max_records, self._turn)
            self._turn += 1
            for partition, (start, end) in ranges.items():
                self._spans[partition] = OffsetRange(min(start, self._spans.get(partition, (start, 0))[0]), end)
            wait_s = min(_SLICE_S, deadline - time.monotonic())
            if records or wait_s <= 0:
                return self._given(records)
            self._member.raise_when_away()

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._buffers)

    def position(self, partition: TopicPartition) -> int:
        self._must_own(partition)
        self._go_back_to_committed()
        if partition in self._unsettled:
            raise TransportError(f"{partition}: where group {self._member.group} goes on is not known yet")
        return self._buffers[partition].position

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._must_own(partition)
        if offset < 0:
            raise TransportError(f"{partition}: cannot seek to {offset}; offsets begin at 0")
        self._unsettled.discard(partition)
        self._begin(partition, offset)

    def commit(self, outputs: Sequence[Outgoing], positions: Mapping[TopicPartition, int]) -> None:
        try:
            settled = {p: buffer for p, buffer in self._buffers.items() if p not in self._unsettled}
            readable = settled if self._member.is_in_group else {}
            refuse_what_was_not_read(self._member.group, readable, positions, has_outputs=bool(outputs))
            if isinstance(self._writer, PlainWriter):
                self._writer.write(outputs)
            elif outputs:
                offsets = self._member.positions(positions)
                self._writer.write(outputs, offsets, self._member.identity)
                return
            if positions:
                self._member.commit(positions)
        except TransportError as error:
            self._unsettled.update(p for p in positions if p in self._buffers)
            if isinstance(error, AnotherProcessError):
                raise self._member.replaced() from error
            raise

    def committed(self, partition: TopicPartition) -> int | None:
        return self._member.committed(partition)

    def pause(self, partitions: frozenset[TopicPartition]) -> None:
        if partitions != self._paused:
            self._paused = partitions
            self._pauses_due = True

    def close(self) -> None:
        self._forget_assignment()
        self._writer.close()
        self._member.close()

    # --- fetching

    def _fetch(self, max_records: int, wait_s: float) -> None:
        """Takes what librdkafka has, unless a poll's worth waits here already; waits for the first message.

        Called in every poll, also then: callbacks and the sign that this member is alive depend on it.
        """
        waiting = sum(len(buffer) for p, buffer in self._buffers.items() if p not in self._paused)
        count = max(max_records, _LEAST_TAKEN) if waiting < max_records else 1
        client = self._member.client
        try:
            # With a timeout librdkafka would wait for all of `count`, so only the first one is waited for.
            fault_points.before("kafka.fetch")
            messages = client.consume(1, wait_s) if wait_s else []
            if messages or not wait_s:
                messages += client.consume(count, 0.0)
            fault_points.after("kafka.fetch")
        except KafkaException as error:
            raise self._member.failed(error.args[0]) from error
        self._member.raise_when_failed()
        runs, events = split(messages)
        for partition, records in runs:
            if (buffer := self._buffers.get(partition)) is not None:
                buffer.add(records)
        if runs:
            self._member.is_heard()
        for event in events:
            self._handle(event)

    def _handle(self, event: Any) -> None:
        error, topic = event.error(), event.topic()
        partition = TopicPartition(topic or "", event.partition())
        if error.code() == KafkaError._PARTITION_EOF:
            self._member.is_heard()
            if (buffer := self._buffers.get(partition)) is not None:
                buffer.pass_to(event.offset())
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            if partition in self._buffers:
                self._lost.add(partition)
        elif error.code() in UNKNOWN_TOPIC:
            self._member.look_at_topics(at_once=True)
        elif error.code() == KafkaError._MAX_POLL_EXCEEDED:
            _LOG.warning("group %s: this member had not polled for too long and joins again", self._member.group)
        elif is_fatal(error) or not error.retriable():
            raise self._member.failed(error)

    # --- bringing librdkafka to where we want it

    def _settle(self) -> None:
        self._member.look_at_topics()
        readings = self._member.take_up()
        if readings is not None:
            self._buffers = {p: Buffer(reading.position) for p, reading in sorted(readings.items())}
            for partition, reading in readings.items():
                self._buffers[partition].begun = reading.begun
            self._paused &= self._buffers.keys()
            self._pauses_due = bool(self._paused)
        self._go_back_to_committed()
        self._seek_where_due()
        if self._pauses_due:
            self._member.client.pause([Position(*p) for p in self._buffers if p in self._paused])
            self._member.client.resume([Position(*p) for p in self._buffers if p not in self._paused])
            self._pauses_due = False
        self._raise_when_lost()

    def _go_back_to_committed(self) -> None:
        """After a commit that failed: what it was about begins again at the committed positions."""
        if not self._unsettled:
            return
        if isinstance(self._writer, TransactionalWriter):
            self._writer.settle()
        due = [p for p in self._buffers if p in self._unsettled]
        positions = self._member.starting_positions(due)
        if positions is not None:
            for partition, offset in positions.items():
                self._begin(partition, offset)
            self._unsettled.clear()

    def _begin(self, partition: TopicPartition, offset: int) -> None:
        self._buffers[partition].begin(offset)
        self._seeks[partition] = offset
        self._lost.discard(partition)
        self._spans.pop(partition, None)

    def _seek_where_due(self) -> None:
        for partition, offset in list(self._seeks.items()):
            try:
                self._member.client.seek(Position(*partition, offset))
            except KafkaException as error:
                if error.args[0].code() not in (KafkaError._STATE, KafkaError._PREV_IN_PROGRESS):
                    raise transport_error(error.args[0], f"seeking {partition} to {offset}") from error
                self._assign_again()
                return
            del self._seeks[partition]

    def _assign_again(self) -> None:
        """Where a fetcher does not run, as after a lost position, librdkafka cannot seek but can begin anew."""
        self._member.client.assign([Position(*p, self._seeks.get(p, b.fetched)) for p, b in self._buffers.items()])
        self._seeks.clear()
        self._pauses_due = bool(self._paused)

    def _forget_assignment(self) -> dict[TopicPartition, Reading]:
        """How far the partitions were read that are settled."""
        readings = {p: Reading(b.begun, b.position) for p, b in self._buffers.items() if p not in self._unsettled}
        self._buffers, self._spans, self._seeks = {}, {}, {}
        self._unsettled, self._lost = set(), set()
        return readings

    # --- ends

    def _given(self, records: list[Record]) -> PolledBatch:
        try:
            at_end = self._at_end()
        except TransportError:
            for partition, span in list(self._spans.items()):  # nobody has seen these records
                self._begin(partition, span.start)
            raise
        return PolledBatch(records, dict(self._spans), at_end)

    def _at_end(self) -> frozenset[TopicPartition]:
        """Asks for the ends only of partitions that are past the last one known. An end that librdkafka has met may be
        a fetch old, and that of a paused partition any time."""
        due = [
            p
            for p, buffer in self._buffers.items()
            if not len(buffer) and buffer.position >= buffer.end_seen and p not in self._unsettled
        ]
        if not due:
            return frozenset()
        for partition, end in self._catalogue.end_offsets(due).items():
            self._buffers[partition].end_seen = end
        at_end = frozenset(p for p in due if self._buffers[p].position >= self._buffers[p].end_seen)
        self._look_for_what_holds_back(at_end)
        return at_end

    def _look_for_what_holds_back(self, at_end: frozenset[TopicPartition]) -> None:
        client, ends = self._member.client, []
        for partition in at_end - self._paused:
            _, end = client.get_watermark_offsets(Position(*partition), cached=True)
            ends.append((partition, self._buffers[partition].position, end))
        self._held_back.note(ends, time.monotonic())

    # --- troubles

    def _raise_when_lost(self) -> None:
        lost = {p: self._buffers[p].fetched for p in self._lost if p not in self._paused}
        if not lost:
            return
        for topic in {p.topic for p in lost}:
            self._member.must_be_same(topic)
        error = positions_lost(lost, self._catalogue.first_offsets(lost), self._catalogue.end_offsets(lost))
        if error is not None:
            raise error
        # It was a matter of a moment, as when a leader changes.
        for partition, position in lost.items():
            self._seeks[partition] = position
            self._lost.discard(partition)

    def _must_own(self, partition: TopicPartition) -> None:
        if partition not in self._buffers:
            raise TransportError(
                f"{partition} is not assigned to this member of group {self._member.group}; poll first"
            )
