"""A group member that reads through librdkafka.

librdkafka joins, heartbeats and fetches in threads of its own; its rebalance callbacks run inside our polls. A granted
assignment is only noted there, and taken up after it with positions of our choosing, so that a failure on the way can
be tried again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import Consumer as Client
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Position

from stream_calib.errors import FencedError, PositionLostError, TopicRecreatedError, TransportError
from stream_calib.transport.librdkafka_buffers import Buffer, take_fairly
from stream_calib.transport.librdkafka_errors import (
    ANOTHER_PROCESS,
    MEMBERSHIP_LOST,
    UNKNOWN_TOPIC,
    is_not_let_in,
    transport_error,
)
from stream_calib.transport.librdkafka_records import split
from stream_calib.transport.librdkafka_topics import REQUEST_TIMEOUT_S, TopicCatalogue, client
from stream_calib.transport.librdkafka_writer import PlainWriter, TransactionalWriter
from stream_calib.transport.port import Consumer, Outgoing, PolledBatch, StartAt, TopicPartition

_LEAST_TAKEN = 1_000
_SLICE_S = 0.05
_GENERATION = slice(len("CGMDv2:"), len("CGMDv2:") + 4)


class LibrdkafkaConsumer(Consumer):
    """See `Consumer`."""

    def __init__(
        self,
        settings: dict[str, Any],
        topics: TopicCatalogue,
        writer: TransactionalWriter | PlainWriter,
        names: Sequence[str],
        start: StartAt,
        check_every_ms: int,
    ) -> None:
        """`settings`: of the client; `names`: the topics; `check_every_ms`: how often their identity is looked at."""
        self._settings = settings
        self._group = str(settings["group.id"])
        self._topics = topics
        self._writer = writer
        self._names = list(names)
        self._start = start
        self._check_every_s = check_every_ms / 1_000
        self._ids: dict[str, str] = {}
        self._asked_ids: dict[str, Future[Any]] = {}
        self._asked_at = 0.0
        self._client: Client | None = None
        self._membership: bytes = b""
        self._granted: list[Position] | None = None
        self._buffers: dict[TopicPartition, Buffer] = {}
        self._unsettled: set[TopicPartition] = set()
        self._seeks: dict[TopicPartition, int] = {}
        self._lost: set[TopicPartition] = set()
        self._paused: frozenset[TopicPartition] = frozenset()
        self._pauses_due = False
        self._away: KafkaError | None = None
        self._fatal: TransportError | None = None
        self._turn = 0

    # --- the port

    def poll(self, max_records: int, timeout_ms: int) -> PolledBatch:
        deadline = time.monotonic() + timeout_ms / 1_000
        consumer = self._running()
        self._settle(consumer)
        wait_s = 0.0
        while True:
            self._fetch(consumer, max_records, wait_s)
            self._settle(consumer)
            records, ranges = take_fairly(self._buffers, self._paused, max_records, self._turn)
            self._turn += 1
            wait_s = min(_SLICE_S, deadline - time.monotonic())
            if ranges or wait_s <= 0:
                return PolledBatch(records, ranges, self._at_end())
            self._raise_when_away(consumer)

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._buffers)

    def position(self, partition: TopicPartition) -> int:
        self._must_own(partition)
        if partition in self._unsettled:
            self._settle_positions(self._running())
        return self._seeks.get(partition, self._buffers[partition].position)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._must_own(partition)
        if offset < 0:
            raise TransportError(f"{partition}: cannot seek to {offset}; offsets begin at 0")
        self._unsettled.discard(partition)
        self._begin(partition, offset)

    def commit(self, outputs: Sequence[Outgoing], positions: Mapping[TopicPartition, int]) -> None:
        offsets = [
            Position(p.topic, p.partition, offset, self._ids[p.topic])
            for p, offset in positions.items()
            if p.topic in self._ids
        ]
        try:
            for partition, offset in positions.items():
                self._refuse_when_fenced(partition, offset)
            if isinstance(self._writer, TransactionalWriter) and outputs:
                self._writer.write(outputs, offsets, self._membership)
            else:
                if outputs:
                    assert isinstance(self._writer, PlainWriter)
                    self._writer.write(outputs)
                if offsets:
                    self._commit_offsets(offsets)
        except TransportError:
            for partition in positions:
                if partition in self._buffers:
                    self._unsettled.add(partition)
            raise

    def committed(self, partition: TopicPartition) -> int | None:
        return self._committed(self._running(), [partition])[partition]

    def pause(self, partitions: frozenset[TopicPartition]) -> None:
        if partitions != self._paused:
            self._paused = partitions
            self._pauses_due = True

    def close(self) -> None:
        consumer, self._client = self._client, None
        self._forget_assignment()
        self._writer.close()
        if consumer is not None:
            consumer.close()

    # --- membership

    def _running(self) -> Client:
        if self._fatal is not None:
            raise self._fatal
        if self._client is None:
            self._ids = (
                {topic: self._topics.identity(topic).id for topic in self._names} if not self._ids else self._ids
            )
            self._client = client(Client, {**self._settings, "error_cb": self._note_error})
            self._client.subscribe(
                self._names, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
            )
        return self._client

    def _note_error(self, error: KafkaError) -> None:
        """librdkafka's own thread or a poll of ours calls it; `poll` raises what is noted."""
        away = error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)
        if is_not_let_in(error) or (away and self._away is None):
            self._away = error

    def _on_assign(self, consumer: Client, partitions: list[Position]) -> None:
        self._membership = consumer.consumer_group_metadata()
        self._granted = partitions
        consumer.assign([])

    def _on_revoke(self, consumer: Client, partitions: list[Position]) -> None:
        self._granted = None
        self._forget_assignment()
        consumer.unassign()

    def _forget_assignment(self) -> None:
        self._buffers = {}
        self._unsettled, self._seeks, self._lost = set(), {}, set()

    def _take_up(self, consumer: Client) -> None:
        """Starts on the granted partitions; raises TransportError, to be called again, when it cannot be done yet."""
        if self._granted is None:
            return
        granted = [TopicPartition(p.topic, p.partition) for p in self._granted]
        positions = self._starting_positions(consumer, granted)
        consumer.assign([Position(p.topic, p.partition, offset) for p, offset in positions.items()])
        self._granted = None
        self._buffers = {p: Buffer(offset) for p, offset in sorted(positions.items())}
        self._paused &= self._buffers.keys()
        self._pauses_due = bool(self._paused)

    def _starting_positions(self, consumer: Client, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        committed = self._committed(consumer, partitions)
        found = {p: offset for p, offset in committed.items() if offset is not None}
        fresh = [p for p, offset in committed.items() if offset is None]
        return {**found, **self._topics.first_offsets(fresh)} if fresh else found

    def _committed(self, consumer: Client, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | None]:
        try:
            answers = consumer.committed([Position(*p) for p in partitions], timeout=REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise transport_error(error.args[0], f"asking for the positions of group {self._group}") from error
        found: dict[TopicPartition, int | None] = {}
        for answer in answers:
            if answer.error is not None:
                raise transport_error(answer.error, f"asking for the positions of group {self._group}")
            partition = TopicPartition(answer.topic, answer.partition)
            if (
                answer.offset >= 0
                and answer.metadata
                and answer.metadata != self._ids.get(answer.topic, answer.metadata)
            ):
                raise self._recreated(answer.topic)
            found[partition] = answer.offset if answer.offset >= 0 else None
        return found

    def _recreated(self, topic: str) -> TopicRecreatedError:
        return TopicRecreatedError(
            f"topic {topic} was deleted and created again: the positions of group {self._group} are of the old one"
        )

    # --- fetching

    def _fetch(self, consumer: Client, max_records: int, wait_s: float) -> None:
        """Takes what librdkafka has, unless a poll's worth waits here already; waits for the first message.

        Called in every poll, also then: callbacks and the sign that this member is alive depend on it.
        """
        waiting = sum(len(buffer) for p, buffer in self._buffers.items() if p not in self._paused)
        count = max(max_records, _LEAST_TAKEN) if waiting < max_records else 1
        try:
            # With a timeout librdkafka would wait for all of `count`, so only the first one is waited for.
            messages = consumer.consume(1, wait_s) if wait_s else []
            if messages or not wait_s:
                messages += consumer.consume(count, 0.0)
        except KafkaException as error:
            raise self._failed(error.args[0]) from error
        runs, events = split(messages)
        for partition, records in runs:
            if (buffer := self._buffers.get(partition)) is not None:
                buffer.add(records)
                self._away = None
        for event in events:
            self._handle(event)

    def _handle(self, event: Any) -> None:
        error = event.error()
        partition = TopicPartition(event.topic(), event.partition()) if event.topic() else None
        buffer = self._buffers.get(partition) if partition is not None else None
        if error.code() == KafkaError._PARTITION_EOF:
            if buffer is not None:
                buffer.meet_end(event.offset())
                self._away = None
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            if buffer is not None and partition is not None:
                self._lost.add(partition)
        elif error.code() in UNKNOWN_TOPIC:
            self._asked_at = 0.0
            self._check_identities()
        elif not error.retriable() or error.fatal():
            raise self._failed(error)

    def _failed(self, error: KafkaError) -> TransportError:
        if error.code() in ANOTHER_PROCESS or (error.fatal() and "instance" in error.str()):
            self._fatal = TransportError(
                f"another process has joined group {self._group} as {self._settings.get('group.instance.id')}:"
                " each process needs a log.instance_id of its own"
            )
            return self._fatal
        if error.code() == KafkaError._MAX_POLL_EXCEEDED:
            return TransportError(
                f"group {self._group}: this member had not polled for too long and lost its partitions"
            )
        if error.fatal():
            # This client is of no more use; the next poll makes another.
            self._client = None
            self._forget_assignment()
        return transport_error(error, f"reading {', '.join(self._names)} as group {self._group}")

    def _settle(self, consumer: Client) -> None:
        """Brings librdkafka to where we want it before records are given."""
        self._check_identities()
        self._take_up(consumer)
        self._settle_positions(consumer)
        for partition, offset in list(self._seeks.items()):
            try:
                consumer.seek(Position(partition.topic, partition.partition, offset))
            except KafkaException as error:
                if error.args[0].code() not in (KafkaError._STATE, KafkaError._PREV_IN_PROGRESS):
                    raise transport_error(error.args[0], f"seeking {partition} to {offset}") from error
                continue  # its fetcher is not ready yet: the next round tries again
            del self._seeks[partition]
        if self._pauses_due:
            paused = [Position(*p) for p in self._buffers if p in self._paused]
            flowing = [Position(*p) for p in self._buffers if p not in self._paused]
            consumer.pause(paused)
            consumer.resume(flowing)
            self._pauses_due = False
        self._raise_when_lost()

    def _settle_positions(self, consumer: Client) -> None:
        """After a commit that failed: what it was about begins again at the committed positions."""
        if not self._unsettled:
            return
        if isinstance(self._writer, TransactionalWriter):
            self._writer.settle()
        due = [p for p in self._buffers if p in self._unsettled]
        for partition, offset in self._starting_positions(consumer, due).items():
            self._begin(partition, offset)
        self._unsettled.clear()

    def _begin(self, partition: TopicPartition, offset: int) -> None:
        self._buffers[partition].begin(offset)
        self._seeks[partition] = offset
        self._lost.discard(partition)

    def _at_end(self) -> frozenset[TopicPartition]:
        return frozenset(
            p for p, b in self._buffers.items() if b.is_at_end and p not in self._seeks and p not in self._unsettled
        )

    # --- troubles

    def _check_identities(self) -> None:
        """Looks now and then whether the topics are still the ones that our positions belong to; never waits."""
        now = time.monotonic()
        if self._asked_ids:
            for topic, asked in list(self._asked_ids.items()):
                if asked.done():
                    del self._asked_ids[topic]
                    if self._topics.answer(asked, topic).id != self._ids[topic]:
                        raise self._recreated(topic)
        elif now - self._asked_at > self._check_every_s:
            self._asked_at = now
            self._asked_ids = dict(self._topics.ask_identities(self._names))

    def _raise_when_lost(self) -> None:
        lost = {p for p in self._lost if p not in self._paused}
        if not lost:
            return
        for topic in {p.topic for p in lost}:
            if self._topics.identity(topic).id != self._ids[topic]:
                raise self._recreated(topic)
        first, end = self._topics.first_offsets(lost), self._topics.end_offsets(lost)
        found: dict[tuple[str, int], tuple[int, int]] = {}
        texts = []
        for partition in sorted(lost):
            position = self._buffers[partition].fetched
            if position < first[partition]:
                found[partition] = (position, first[partition])
                texts.append(
                    f"{partition}: the records {position} to {first[partition] - 1} are gone; seek to"
                    f" {first[partition]} to go on"
                )
            elif position > end[partition]:
                found[partition] = (position, position)
                texts.append(f"{partition}: the log ends at {end[partition]}, before the position {position}")
            else:
                self._seeks[partition] = position  # it was a matter of a moment, as when a leader changes
                self._lost.discard(partition)
        if found:
            raise PositionLostError("; ".join(texts), found)

    def _raise_when_away(self, consumer: Client) -> None:
        """While brokers were last heard of as away, an empty poll is one only when they answer again."""
        error = self._away
        if error is None:
            return
        doing = f"reading {', '.join(self._names)} as group {self._group}"
        if not is_not_let_in(error):
            try:
                consumer.list_topics(self._names[0], timeout=_SLICE_S)
                self._away = None
                return
            except KafkaException as still:
                raise transport_error(error, doing) from still
        self._away = None
        raise transport_error(error, doing)

    def _refuse_when_fenced(self, partition: TopicPartition, offset: int) -> None:
        buffer = self._buffers.get(partition)
        generation = int.from_bytes(self._membership[_GENERATION], "little", signed=True)
        if buffer is None or generation < 0 or partition in self._unsettled or self.position(partition) < offset:
            raise FencedError(
                f"{partition} up to {offset} was not read by this member of group {self._group} since it got the"
                " partition; drop the batch and poll again"
            )

    def _commit_offsets(self, offsets: Sequence[Position]) -> None:
        try:
            done = self._running().commit(offsets=list(offsets), asynchronous=False)
            failed = next((p.error for p in done or () if p.error is not None), None)
        except KafkaException as error:
            failed = error.args[0]
        if failed is None:
            return
        if failed.code() in MEMBERSHIP_LOST:
            raise FencedError(f"group {self._group} has given the batch's partitions away; drop it and poll again")
        raise transport_error(failed, f"committing positions of group {self._group}")

    def _must_own(self, partition: TopicPartition) -> None:
        if partition not in self._buffers:
            raise TransportError(f"{partition} is not assigned to this member of group {self._group}; poll first")
