"""A group member that reads through kafka-python.

kafka-python joins the group and fetches inside our polls, and heartbeats in a thread of its own. It may keep positions
over a rebalance also when another member had the partition in between. So they are kept here only when the generation
follows ours; else its partitions begin again at the committed positions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from kafka import TopicPartition as KafkaPartition
from kafka.errors import (
    FencedInstanceIdError,
    KafkaError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from kafka.structs import MemberState

from stream_calib import fault_points
from stream_calib.errors import AnotherProcessError, TransportError
from stream_calib.transport.fetch_buffers import Buffer, take_fairly
from stream_calib.transport.kafka_errors import transport_error
from stream_calib.transport.kafka_group import GroupPositions, NotKnownYetError, is_same_membership
from stream_calib.transport.kafka_joining import JoiningConsumer
from stream_calib.transport.kafka_positions import HeldBack, joined_as_we_did, positions_lost, refuse_what_was_not_read
from stream_calib.transport.kafka_records import records_of
from stream_calib.transport.kafka_topics import TopicCatalogue, opened
from stream_calib.transport.kafka_writer import PlainWriter, TransactionalWriter
from stream_calib.transport.port import Consumer, Outgoing, PolledBatch, StartAt, TopicPartition

_LOG = logging.getLogger(__name__)

_ANSWER_WITHIN_MS = 10_000
_CLOSE_WITHIN_MS = 2_000
_SLICE_MS = 100
_TAKEN_AT_ONCE = 50_000
_LOOK_AT_TOPICS_S = 1.0


class KafkaMember(Consumer):
    """See `Consumer`."""

    def __init__(
        self,
        settings: dict[str, Any],
        topics: TopicCatalogue,
        writer: TransactionalWriter | PlainWriter,
        names: Sequence[str],
        start: StartAt,
    ) -> None:
        """`settings`: of the client; `names`: the topics."""
        self._settings = settings
        self._group = str(settings["group_id"])
        self._topics = topics
        self._positions = GroupPositions(self._group, topics, start)
        self._writer = writer
        self._names = list(names)
        self._doing = f"reading {', '.join(names)} as group {self._group}"
        self._client: Any = None
        self._looked_at_topics = 0.0
        self._membership: Any = None
        self._buffers: dict[TopicPartition, Buffer] = {}
        self._unsettled: set[TopicPartition] = set()
        """Assigned partitions whose position is not known: just assigned, or in a commit that failed."""
        self._paused: frozenset[TopicPartition] = frozenset()
        self._held_back = HeldBack()
        self._replaced = False
        self._turn = 0

    # --- the port

    def poll(self, max_records: int, timeout_ms: int) -> PolledBatch:
        deadline = time.monotonic() + timeout_ms / 1_000
        client = self._running()
        wait_ms = 0.0
        while True:
            self._check_topics()
            self._settle(client)
            self._pause_what_is_full(client, max_records)
            self._fetch(client, wait_ms)
            self._settle(client)
            ready = self._settled()
            waiting = any(buffer.position < buffer.fetched for p, buffer in ready.items() if p not in self._paused)
            wait_ms = min(_SLICE_MS, (deadline - time.monotonic()) * 1_000)
            if waiting or wait_ms <= 0:
                return self._give(client, ready, max_records)

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._buffers)

    def position(self, partition: TopicPartition) -> int:
        self._must_own(partition)
        self._settle(self._running())
        if partition in self._unsettled:
            raise TransportError(f"{partition}: the committed position of group {self._group} is not known yet")
        return self._buffers[partition].position

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._must_own(partition)
        if offset < 0:
            raise TransportError(f"{partition}: cannot seek to {offset}; offsets begin at 0")
        self._begin(self._running(), partition, offset)

    def commit(self, outputs: Sequence[Outgoing], positions: Mapping[TopicPartition, int]) -> None:
        try:
            refuse_what_was_not_read(self._group, self._settled(), positions, has_outputs=bool(outputs))
            offsets = self._positions.offsets(positions)
            if isinstance(self._writer, TransactionalWriter):
                if outputs:
                    self._writer.write(outputs, offsets, self._membership)
                else:
                    self._positions.commit(self._running(), offsets, self._membership)
            else:
                if offsets:
                    self._positions.refuse_when_shared_anew(self._running(), self._membership)
                self._writer.write(outputs)
                self._positions.commit(self._running(), offsets, self._membership)
        except TransportError as error:
            self._unsettled |= positions.keys() & self._buffers.keys()
            if isinstance(error, AnotherProcessError):
                raise self._stopped_by_another_process() from error
            raise

    def committed(self, partition: TopicPartition) -> int | None:
        return self._positions.committed(self._running(), partition)

    def pause(self, partitions: frozenset[TopicPartition]) -> None:
        self._paused = partitions

    def close(self) -> None:
        client, self._client = self._client, None
        self._buffers, self._unsettled = {}, set()
        self._writer.close()
        if client is not None:
            try:
                client.close(autocommit=False, timeout_ms=_CLOSE_WITHIN_MS)
            except KafkaError as error:
                # Leaving only saves the others the session timeout, and close must not hide why the caller is ending.
                _LOG.warning("a member of group %s ends without leaving it: %s", self._group, error)

    # --- membership

    def _running(self) -> Any:
        if self._replaced:
            raise self._stopped_by_another_process()
        if self._client is None:
            self._positions.note_topics(self._names)
            self._client = opened(JoiningConsumer, {**self._settings, "topics": self._names})
        return self._client

    def _take_up(self, client: Any) -> None:
        """Notes the assignment when the group has settled on one."""
        now = client.group_metadata()
        assigned = {TopicPartition(*partition) for partition in client.assignment()}
        if now.state is not MemberState.STABLE or now.generation_id < 0:
            # Not shared anew yet; what kafka-python has given up by now is lost.
            self._paused -= self._buffers.keys() - assigned
            self._buffers = {p: buffer for p, buffer in self._buffers.items() if p in assigned}
            self._unsettled &= assigned
            return
        then = self._membership
        if then is not None and is_same_membership(then, now) and assigned == self._buffers.keys():
            return
        # Nobody else can have had a partition that was ours in the generation just before.
        follows = then is not None and now.member_id == then.member_id and now.generation_id <= then.generation_id + 1
        kept = assigned & self._buffers.keys() if follows else set()
        self._paused -= self._buffers.keys() - kept  # what comes back flows
        self._buffers = {p: self._buffers[p] if p in kept else Buffer(0) for p in sorted(assigned)}
        self._unsettled = (self._unsettled & kept) | (assigned - kept)
        self._membership = now

    def _stopped_by_another_process(self) -> AnotherProcessError:
        self._replaced = True
        return joined_as_we_did(self._group, self._settings.get("group_instance_id"))

    # --- positions

    def _settle(self, client: Any) -> None:
        """Brings partitions whose position is not known to the committed one, or to where the group is to start."""
        if not self._unsettled:
            return
        if isinstance(self._writer, TransactionalWriter):
            self._writer.settle()
        for partition in sorted(self._unsettled):
            try:
                offset = self._positions.beginning(client, partition, self._membership)
            except NotKnownYetError as error:
                _LOG.info("%s", error)
                return
            if offset is not None:
                self._begin(client, partition, offset)

    def _settled(self) -> dict[TopicPartition, Buffer]:
        return {p: buffer for p, buffer in self._buffers.items() if p not in self._unsettled}

    def _begin(self, client: Any, partition: TopicPartition, offset: int) -> None:
        self._buffers[partition].begin(offset)
        self._unsettled.discard(partition)
        client.seek(KafkaPartition(*partition), offset)

    # --- fetching

    def _fetch(self, client: Any, wait_ms: float) -> None:
        """Takes what kafka-python has; waits for the first record. Also joins, and shows that this member is alive."""
        try:
            fault_points.before("kafka.fetch")
            found = client.fetched(wait_ms, _TAKEN_AT_ONCE)
            fault_points.after("kafka.fetch")
            self._take_up(client)
            self._buffer(found)
            self._pass_what_holds_no_record(client, found)
        except NoOffsetForPartitionError:
            # New partitions without a committed position: `_settle` says where they begin.
            self._take_up(client)
        except (OffsetOutOfRangeError, LogTruncationError) as error:
            self._raise_when_lost(error)
        except FencedInstanceIdError as error:
            raise self._stopped_by_another_process() from error
        except KafkaError as error:
            raise transport_error(error, self._doing) from error

    def _buffer(self, found: Mapping[KafkaPartition, Sequence[Any]]) -> None:
        for partition, records in found.items():
            source = TopicPartition(*partition)
            if source in self._buffers and source not in self._unsettled:
                self._buffers[source].add(records_of(source, records))

    def _pass_what_holds_no_record(self, client: Any, found: Mapping[KafkaPartition, Sequence[Any]]) -> None:
        """The ends of transactions, and what was aborted: kafka-python is past them."""
        if self._unsettled:  # it does not tell positions while it lacks one
            return
        for source, buffer in self._buffers.items():
            place = KafkaPartition(*source)
            if place in found or (not len(buffer) and buffer.fetched < buffer.end_seen):
                buffer.fetched = max(buffer.fetched, client.position(place, timeout_ms=_ANSWER_WITHIN_MS) or 0)

    def _pause_what_is_full(self, client: Any, max_records: int) -> None:
        """kafka-python goes on fetching only for partitions of which less than a poll's worth waits here."""
        wanted = {
            KafkaPartition(*p) for p, buffer in self._buffers.items() if p in self._paused or len(buffer) >= max_records
        }
        paused = client.paused()
        if wanted != paused:
            assigned = client.assignment()
            client.pause(*((wanted - paused) & assigned))
            client.resume(*((paused - wanted) & assigned))

    def _give(self, client: Any, ready: Mapping[TopicPartition, Buffer], max_records: int) -> PolledBatch:
        records, ranges = take_fairly(ready, self._paused, max_records, self._turn)
        self._turn += 1
        try:
            at_end = self._at_end(client, ready)
        except TransportError:
            for partition, span in ranges.items():  # nobody has seen these records
                self._begin(client, partition, span.start)
            raise
        return PolledBatch(records, ranges, at_end)

    def _at_end(self, client: Any, ready: Mapping[TopicPartition, Buffer]) -> frozenset[TopicPartition]:
        """Asks for the ends only of partitions that are past the last one known."""
        due = [p for p, buffer in ready.items() if not len(buffer) and buffer.position >= buffer.end_seen]
        if not due:
            return frozenset()
        # Not through our own client: on its connection the answer would wait behind a fetch that waits for records.
        for partition, end in self._topics.current_ends(due).items():
            ready[partition].end_seen = end
        at_end = frozenset(p for p in due if ready[p].position >= ready[p].end_seen)
        log_ends = ((p, client.highwater(KafkaPartition(*p)) or 0) for p in at_end)
        self._held_back.note(((p, ready[p].end_seen, end) for p, end in log_ends), time.monotonic())
        return at_end

    # --- troubles

    def _check_topics(self, *, now: bool = False) -> None:
        """Looks now and then whether the topics are still the ones that our positions belong to."""
        if now or time.monotonic() - self._looked_at_topics >= _LOOK_AT_TOPICS_S:
            self._positions.check_topics(self._names)
            self._looked_at_topics = time.monotonic()

    def _raise_when_lost(self, error: KafkaError) -> None:
        self._check_topics(now=True)
        positions = {p: buffer.fetched for p, buffer in self._settled().items()}
        unread = [p for p in positions if p not in self._paused]
        lost = positions_lost(
            {p: positions[p] for p in unread}, self._topics.first_offsets(unread), self._topics.end_offsets(unread)
        )
        if lost is not None:
            raise lost from error
        if isinstance(error, LogTruncationError):
            raise transport_error(error, self._doing) from error
        # Else it was a matter of a moment, as when a leader changes.

    def _must_own(self, partition: TopicPartition) -> None:
        if partition not in self._buffers:
            raise TransportError(f"{partition} is not assigned to this member of group {self._group}; poll first")
