"""A group member that reads the embedded log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import redis
from redis.exceptions import NoScriptError

from stream_calib import fault_points
from stream_calib.errors import FencedError, PositionLostError, TransportError
from stream_calib.redis_connection import answering
from stream_calib.transport.embedded_append import Move, Moves, TopicState, Writer
from stream_calib.transport.embedded_layout import entry_id, entry_offset, group_key, stream_key, unpack
from stream_calib.transport.embedded_lease import Lease, Membership
from stream_calib.transport.partitioning import fair_counts, fair_cut
from stream_calib.transport.port import (
    Consumer,
    OffsetRange,
    Outgoing,
    PolledBatch,
    Record,
    StartAt,
    TopicPartition,
)

_LOG = logging.getLogger(__name__)

_MAX_WAIT_MS = 500
"""A waiting member looks this often for partitions to take or to give up."""

_BYTES_A_POLL = 32 << 20
"""About, judged by the size of the records before: a backlog of large records must not take all memory, nor what is
made of a poll be more than the server takes in one call."""

_WAIT_UNASSIGNED_MS = 50
"""The same for a member that has nothing to read, which no record can wake."""


class EmbeddedConsumer(Consumer):
    """See `Consumer`. After a commit that was fenced or is not known to be done, its partitions begin again at the
    committed positions, unless the caller seeks elsewhere."""

    def __init__(
        self,
        client: redis.Redis,
        group: str,
        topics: Sequence[str],
        member: str,
        start: StartAt,
        *,
        session_timeout_ms: int,
        describe: Callable[[str], TopicState],
    ) -> None:
        self._client = client
        self._start = start
        self._membership = Membership(client, group, topics, member, session_timeout_ms=session_timeout_ms)
        self._writer = Writer(client, self._membership.instance, describe)
        self._max_wait_ms = max(1, min(_MAX_WAIT_MS, session_timeout_ms // 3))
        self._positions: dict[TopicPartition, int] = {}
        self._unsettled: set[TopicPartition] = set()
        """Partitions whose committed position is not known since a commit failed."""
        self._paused: frozenset[TopicPartition] = frozenset()
        self._turn = 0
        self._record_bytes = 0.0
        """Of the last records; after large ones it goes down by half a poll. 0: not known yet."""

    def poll(self, max_records: int, timeout_ms: int) -> PolledBatch:
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            batch = self._read_once(max_records)
            if batch.records:
                return batch
            readable = self._readable()
            if any(partition not in batch.at_end for partition in readable):
                continue  # just assigned, or written while we looked
            left_ms = (deadline - time.monotonic()) * 1000
            if left_ms <= 0:
                return batch
            self._wait(readable, left_ms)

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._membership.leases)

    def position(self, partition: TopicPartition) -> int:
        self._must_own(partition)
        return self._position(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._must_own(partition)
        if offset < 0:
            raise TransportError(f"{partition}: cannot seek to {offset}; offsets begin at 0")
        self._positions[partition] = offset

    def commit(self, outputs: Sequence[Outgoing], positions: Mapping[TopicPartition, int]) -> None:
        leases = self._membership.leases
        for partition in positions:
            if partition not in leases:
                self._begin_again(positions)
                raise FencedError(
                    f"{partition} is not assigned to member {self._membership.member} of group"
                    f" {self._membership.group}; drop the batch and poll again"
                )
        moves = [Move(p, leases[p].token, leases[p].committed, new) for p, new in positions.items()]
        membership = self._membership
        try:
            self._writer.append(outputs, Moves(membership.group, membership.member, membership.beat, moves))
        except TransportError:
            self._begin_again(positions)
            raise
        for partition, new in positions.items():
            leases[partition].committed = new

    def committed(self, partition: TopicPartition) -> int | None:
        with answering(TransportError, f"reading the committed position of {partition}"):
            found = self._client.hget(
                group_key(self._membership.group, partition.topic), f"position:{partition.partition}"
            )
        committed = None if found is None else int(found)
        self._unsettled.discard(partition)
        if lease := self._membership.leases.get(partition):
            lease.committed = committed
        return committed

    def pause(self, partitions: frozenset[TopicPartition]) -> None:
        self._paused = partitions

    def close(self) -> None:
        try:
            self._membership.leave()
        except TransportError as error:
            # Leaving only saves the others the session timeout, and close must not hide why the caller is ending.
            _LOG.warning("member %s ends without leaving its group: %s", self._membership.member, error)

    def _readable(self) -> list[TopicPartition]:
        return [partition for partition in self._membership.leases if partition not in self._paused]

    def _read_once(self, max_records: int) -> PolledBatch:
        """Reads and heartbeat in one round trip. Partitions that are new with this heartbeat give records next time."""
        known = self._membership.leases
        backlog = {p: lease.end - self._position(p) for p, lease in known.items()}
        if not self._record_bytes:
            self._record_bytes = self._first_size()
        if self._record_bytes:
            max_records = min(max_records, max(1, int(_BYTES_A_POLL / self._record_bytes)))
        counts = fair_counts(self._readable(), backlog, max_records, self._turn)
        self._turn += 1
        *found, reply = self._round_trip(counts)
        whole = self._membership.take_reply(reply)
        if not whole or self._lost_a_commit(known):
            self._positions.clear()
            raise TransportError(
                "the log's server has lost the last writes before a crash: go back to the committed positions"
            )
        self._unsettled.clear()
        leases = self._membership.leases
        # A partition under another token was another member's in between: its position is not ours any more.
        kept = {p for p, lease in leases.items() if p in known and known[p].token == lease.token}
        self._positions = {p: offset for p, offset in self._positions.items() if p in kept}
        owned = {p: entries for p, entries in zip(counts, found, strict=True) if p in kept}
        for partition, entries in owned.items():
            self._refuse_a_gap(partition, entries, backlog[partition])
        records: list[Record] = []
        ranges: dict[TopicPartition, OffsetRange] = {}
        for partition, count in fair_cut({p: len(entries) for p, entries in owned.items()}, max_records).items():
            if count:
                records += unpack(partition, owned[partition][:count])
                start = self._position(partition)
                ranges[partition] = OffsetRange(start, start + count)
        if sizes := [len(entry[1][1]) for entries in owned.values() for entry in entries]:
            self._record_bytes = max(sum(sizes) / len(sizes), self._record_bytes / 2)
        for partition, span in ranges.items():
            self._positions[partition] = span.end
        at_end = frozenset(p for p, lease in leases.items() if self._position(p) == lease.end)
        return PolledBatch(records, ranges, at_end)

    def _first_size(self) -> float:
        """Bytes of the largest of the partitions' next records; 0 where there is none."""
        with (
            answering(TransportError, "looking at the first records"),
            self._client.pipeline(transaction=False) as pipeline,
        ):
            for partition in self._readable():
                pipeline.xrange(stream_key(partition), entry_id(self._position(partition)), "+", 1)
            return float(max((len(entry[1][1]) for entries in pipeline.execute() for entry in entries), default=0))

    def _lost_a_commit(self, known: Mapping[TopicPartition, Lease]) -> bool:
        """Whether the server has forgotten a commit that it had answered, and still knows the heartbeat before it."""
        leases = self._membership.leases
        return any(
            leases[p].committed != lease.committed
            for p, lease in known.items()
            if p in leases and leases[p].token == lease.token and p not in self._unsettled
        )

    def _round_trip(self, counts: Mapping[TopicPartition, int]) -> list[Any]:
        for attempt in range(2):
            with (
                answering(TransportError, f"reading {', '.join(map(str, counts)) or 'no partition yet'}"),
                self._client.pipeline(transaction=False) as pipeline,
            ):
                for partition, count in counts.items():
                    pipeline.xrange(stream_key(partition), entry_id(self._position(partition)), "+", count)
                self._membership.send_heartbeat(pipeline)
                try:
                    fault_points.before("redis.embedded_lease")
                    replies = pipeline.execute()
                    fault_points.after("redis.embedded_lease")
                    return replies
                except NoScriptError:
                    if attempt:
                        raise
            self._membership.reload()
        raise AssertionError("unreachable")

    def _refuse_a_gap(self, partition: TopicPartition, entries: Sequence[Any], backlog_before: int) -> None:
        position, end = self._position(partition), self._membership.leases[partition].end
        if position > end:
            raise PositionLostError(
                f"{partition}: the log ends at {end}, before the position {position}: its server has lost records;"
                f" seek to {end} or before to go on",
                {partition: (position, position)},
            )
        if entries:
            first = entry_offset(entries[0][0])
        elif backlog_before > 0:
            first = end
        else:
            return
        if first > position:
            raise PositionLostError(
                f"{partition}: the records {position} to {first - 1} are gone, trimmed before they were read;"
                f" seek to {first} to go on without them",
                {partition: (position, first)},
            )

    def _position(self, partition: TopicPartition) -> int:
        if (position := self._positions.get(partition)) is None:
            position = self._positions[partition] = self._starting_position(partition)
        return position

    def _starting_position(self, partition: TopicPartition) -> int:
        lease = self._membership.leases[partition]
        if partition in self._unsettled:
            self.committed(partition)
        if lease.committed is not None:
            return lease.committed
        if not self._start.earliest and lease.began_with_group:
            return lease.end
        with answering(TransportError, f"looking for the first record of {partition}"):
            entries: Any = self._client.xrange(stream_key(partition), "-", "+", 1)
        return entry_offset(entries[0][0]) if entries else lease.end

    def _begin_again(self, partitions: Mapping[TopicPartition, int]) -> None:
        for partition in partitions:
            self._positions.pop(partition, None)
            self._unsettled.add(partition)

    def _wait(self, readable: Sequence[TopicPartition], left_ms: float) -> None:
        """Until there is a new record in one of the partitions, or it is time for a heartbeat."""
        if not readable:
            time.sleep(min(left_ms, self._max_wait_ms, _WAIT_UNASSIGNED_MS) / 1000)
            return
        streams = {stream_key(p): f"{self._position(p)}-0" for p in readable}
        with answering(TransportError, "waiting for records"):
            # What arrives is read again by the next round, whose heartbeat comes after it.
            self._client.xread(streams, count=1, block=max(1, int(min(left_ms, self._max_wait_ms))))  # type: ignore[arg-type]  # redis's dict type is invariant

    def _must_own(self, partition: TopicPartition) -> None:
        if partition not in self._membership.leases:
            raise TransportError(f"{partition} is not assigned to member {self._membership.member}; poll first")
