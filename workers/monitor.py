"""monitor: brings blocks and labels to the join, and (one of them, by lease) closes, matures and decides panes."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack, closing

from stream_calib import metrics
from stream_calib.config import Config
from stream_calib.errors import FencedError, StateUnavailableError, TransportError
from stream_calib.events.contracts import Reject
from stream_calib.events.dead_letters import dead_letters
from stream_calib.events.label_decoder import LabelDecoder
from stream_calib.refit.decider import Decider
from stream_calib.snapshot.decision_log import Request
from stream_calib.transport.port import OffsetRange, PolledBatch, Record, TopicPartition
from stream_calib.windows.closer import Closer
from stream_calib.windows.input_batch import InputBatch, judge_records
from stream_calib.windows.intake import Intake
from stream_calib.windows.registration import claim_generation, claim_topics, register_inputs
from stream_calib.windows.shard_store import Mark
from workers.deployment import input_key, input_starts, member_name, open_log, open_state
from workers.input_reports import InputReport, idle_label_inputs, too_far_ahead
from workers.monitor_inputs import read_blocks, read_labels
from workers.rejects import RejectCounts
from workers.role import Role, wall_clock_ms
from workers.status_board import MemberStatus

_LOG = logging.getLogger(__name__)

GROUP = "monitor"
CLOSER_LEASE = "closer"
_POLL_MS = 20
_ROWS_A_POLL = 100_000
"""So that a poll is worked off well within the session timeout."""
_MAX_RECORDS, _FEWEST_RECORDS = 5_000, 100
_LEASE_MS = 5_000
_LEASE_RETRY_MS = 500
_EVERY_MS = 1_000
_REPORT_BUSY_MS = 50
"""While there are unread records, others may wait for what this process says of its clocks."""


class Monitor(Role):
    """Its only output is the state (and dead letters, at least once), so repeating any of its work changes nothing."""

    name = "monitor"

    def __init__(self, config: Config, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        """`clock_ms`: wall time, for idleness, leases and statuses only."""
        self._config = config
        self._clock_ms = clock_ms
        self._member = member_name()
        self._decoder = LabelDecoder(config)
        self._opened = ExitStack()
        self._rejected = RejectCounts()

    def open(self) -> None:
        self.close()
        config = self._config
        self._state = state = self._opened.enter_context(closing(open_state(config)))
        self._log = log = self._opened.enter_context(open_log(config))
        self._opened.callback(lambda: state.board.drop(self.name, self._member))
        self._opened.callback(lambda: state.store.release_lease(CLOSER_LEASE, self._member))
        self._side = {config.topics.blocks: "s", config.topics.labels: "l"}
        self._claim()
        starts = input_starts(log, config)
        self._keys = {
            partition: input_key(log, side, partition)
            for topic, side in self._side.items()
            for partition in (TopicPartition(topic, p) for p in range(log.partitions(topic)))
        }
        self._intake = Intake(
            state.shards,
            lambda: register_inputs(state.shards, state.store, {i: Mark(p, None) for i, p in starts.items()}),
        )
        self._marks: dict[TopicPartition, Mark] = {}
        self._idle_since: dict[TopicPartition, int] = {}
        self._reports: dict[str, InputReport] = {}
        self._known_signatures: set[int] = set()
        self._uncommitted: set[TopicPartition] = set()
        self._records_a_poll = _FEWEST_RECORDS
        self._committed_at = self._lease_until = self._lease_asked = 0
        self._reported_at = self._looked_behind_at = 0
        self._reported_busy = False
        self._open_since: tuple[str, int] = ("", 0)
        self._closer = Closer(
            state.shards,
            state.store,
            lambda first_pane: Decider(
                state.model_key,
                state.generation,
                first_pane,
                config,
                state.store.signatures,
                state.snapshots.reference,
            ),
            idle_inputs=self._idle_inputs,
            may_expire=self._may_expire,
        )
        self._consumer = self._opened.enter_context(log.consumer(GROUP, list(self._side), member=self._member))

    def step(self) -> bool:
        try:
            return self._step()
        except (StateUnavailableError, TransportError):
            # What was polled may be applied in part, or writes be lost with the server: the shards know where to go on.
            self._marks.clear()
            self._idle_since.clear()
            self._known_signatures.clear()
            raise

    def _step(self) -> bool:
        polled = self._consumer.poll(self._records_a_poll, _POLL_MS)
        if not self._take_over() and polled.records:
            self._apply(polled)
        self._note_ends(polled)
        self._commit_positions()
        now = self._clock_ms()
        if now - self._looked_behind_at >= _EVERY_MS:
            self._looked_behind_at = now
            self._rewind_behind()
        busy = any(partition not in self._idle_since for partition in self._marks)
        if now - self._reported_at >= (_REPORT_BUSY_MS if busy or self._reported_busy else _EVERY_MS):
            self._reported_busy = busy
            self._report()
        if self._has_lease():
            self._closer.advance()
        # The poll has waited already.
        return True

    def close(self) -> None:
        self._opened.close()

    # --- reading

    def _take_over(self) -> bool:
        """Newly assigned partitions are read from where the shards are. True: what was polled before is discarded."""
        assigned = self._consumer.assignment()
        for partition in list(self._marks):
            if partition not in assigned:
                del self._marks[partition]
                self._idle_since.pop(partition, None)
        new = set(assigned - set(self._marks))
        if new:
            self._claim()  # it is lost with a state that was wiped
            self._state.shards.attach()
            # What was polled before this belongs to no run of the server that is known.
            for partition, mark in self._marks.items():
                self._consumer.seek(partition, mark.next)
        for partition in sorted(new):
            self._rewind(partition, self._intake.restart(self._keys[partition]))
        return bool(new)

    def _claim(self) -> None:
        claim_generation(self._state.store, self._state.generation)
        claim_topics(self._state.store, {topic: self._log.topic_id(topic) for topic in self._side})

    def _rewind(self, partition: TopicPartition, mark: Mark) -> None:
        self._marks[partition] = mark
        self._consumer.seek(partition, mark.next)

    def _apply(self, polled: PolledBatch) -> None:
        by_partition: dict[TopicPartition, list[Record]] = defaultdict(list)
        for record in polled.records:
            by_partition[record.source].append(record)
        batches: list[InputBatch] = []
        owners: dict[str, TopicPartition] = {}
        signatures: dict[int, tuple[str, ...]] = {}
        for partition, records in by_partition.items():
            mark = self._marks[partition]
            if polled.ranges[partition].end <= mark.next:
                continue  # the consumer went back to its committed position; the shards have all of this
            # Offsets between may hold nothing to read (ends of transactions); the shards' ranges have no gaps.
            span = OffsetRange(mark.next, polled.ranges[partition].end)
            if self._side[partition.topic] == "s":
                read, found, rejects = read_blocks(records, span, self._state.model_key)
                signatures.update(found)
            else:
                read, rejects = read_labels(records, span, self._decoder)
            self._refuse(records, rejects)
            key = self._keys[partition]
            owners[key] = partition
            batches.append(
                judge_records(key, read, mark.clock_ms, self._state.shards.count, self._state.shards.settings)
            )
        rows = sum(len(batch.row_position) for batch in batches)
        if rows:
            # A record of `blocks` holds one row or a thousand; the last poll says which.
            fitting = _ROWS_A_POLL * len(polled.records) // rows
            self._records_a_poll = min(max(fitting, _FEWEST_RECORDS), _MAX_RECORDS)
        # Before the rows that name them, so that no cell ever has a signature that nobody can read.
        new = {h: values for h, values in signatures.items() if h not in self._known_signatures}
        self._state.store.put_signatures(new)
        self._known_signatures.update(new)
        rewinds = self._intake.apply(batches)
        for batch in batches:
            partition = owners[batch.input_key]
            if batch.input_key in rewinds:
                self._read_again(partition, rewinds[batch.input_key])
            else:
                self._marks[partition] = batch.mark
                self._uncommitted.add(partition)
                metrics.ROWS_JOINED.labels(str(self._state.model_key), batch.side).inc(len(batch.row_position))

    def _rewind_behind(self) -> None:
        """Shards that lost writes are brought up to date without traffic too, or their panes would never close."""
        partitions = {self._keys[p]: p for p in self._marks}
        for key, mark in self._intake.behind({key: self._marks[p].next for key, p in partitions.items()}).items():
            self._read_again(partitions[key], mark)

    def _read_again(self, partition: TopicPartition, mark: Mark) -> None:
        metrics.REWINDS.labels(partition.topic).inc()
        _LOG.warning("%s is read again from %s: a shard has lost writes", partition, mark.next)
        # A store that lost rows may have lost what was put before them, and whose it is.
        self._known_signatures.clear()
        self._claim()
        self._rewind(partition, mark)

    def _refuse(self, records: list[Record], rejects: list[Reject]) -> None:
        """Dead letters first: where they cannot be written, the position is not passed."""
        if rejects:
            self._log.produce(dead_letters(self._config.topics.dead_letters, records, rejects))
            self._rejected.add(records, rejects)

    def _note_ends(self, polled: PolledBatch) -> None:
        now = self._clock_ms()
        for partition in self._marks:
            if partition not in polled.at_end:
                self._idle_since.pop(partition, None)
            elif partition in polled.ranges:
                self._idle_since[partition] = now
            else:
                self._idle_since.setdefault(partition, now)
        reports = self._reports | self._own_reports()
        paused = too_far_ahead(reports, self._config.windows.max_input_skew_ms)
        self._consumer.pause(frozenset(p for p in self._marks if self._keys[p] in paused))

    def _own_reports(self) -> dict[str, InputReport]:
        return {
            self._keys[p]: InputReport(mark.next, mark.clock_ms, self._idle_since.get(p))
            for p, mark in self._marks.items()
        }

    def _commit_positions(self) -> None:
        """The group's positions follow the shards', for the users' own lag monitoring."""
        now = self._clock_ms()
        if self._uncommitted and now - self._committed_at >= _EVERY_MS:
            self._committed_at = now
            due = {p: self._marks[p].next for p in self._uncommitted if p in self._marks}
            self._uncommitted.clear()
            try:
                self._consumer.commit([], due)
            except FencedError as error:
                _LOG.info("positions were not committed: %s", error)
            except TransportError as error:
                _LOG.warning("positions were not committed: %s", error)
            # A commit that failed sets the consumer back to the committed positions; the shards' are the truth.
            for partition, mark in self._marks.items():
                if partition in self._consumer.assignment() and self._consumer.position(partition) != mark.next:
                    self._consumer.seek(partition, mark.next)

    # --- closing

    def _has_lease(self) -> bool:
        """Renewed well before it ends; it only saves work, so nothing hangs on the exact moment."""
        now = self._clock_ms()
        if now >= self._lease_until - _LEASE_MS // 2 and now >= self._lease_asked + _LEASE_RETRY_MS:
            self._lease_asked = now
            if self._state.store.acquire_lease(CLOSER_LEASE, self._member, _LEASE_MS):
                self._lease_until = now + _LEASE_MS
        return now < self._lease_until

    def _idle_inputs(self) -> dict[str, int]:
        windows = self._config.windows
        if windows.idle_timeout_ms is None or windows.missing_label == "negative_at_horizon":
            return {}
        reports = self._reports | self._own_reports()
        return idle_label_inputs(reports, self._clock_ms(), windows.idle_timeout_ms)

    def _may_expire(self, request: Request, matured: int) -> bool:
        """Unanswered for `settle_panes` matured panes and as much wall time, as this closer has seen it."""
        windows = self._config.windows
        now = self._clock_ms()
        if self._open_since[0] != request.id:
            self._open_since = (request.id, now)
        waited = now - self._open_since[1] >= windows.settle_panes * windows.pane_ms
        return windows.expire_requests and waited and matured - request.pane >= windows.settle_panes

    def _report(self) -> None:
        """Says where this process is, and hears where the other monitors are: those that are alive, because an old
        report must not leave out what nobody reads now."""
        now = self._reported_at = self._clock_ms()
        facts = {
            "inputs": self._own_reports(),
            "rejected": dict(self._rejected.by_reason),
            "closer": now < self._lease_until,
        }
        self._state.board.put(MemberStatus(self.name, self._member, now, facts))
        self._reports = {
            key: InputReport(*report)
            for status in self._state.board.all(now)
            if status.role == self.name and status.member != self._member and now - status.time_ms <= 3 * _EVERY_MS
            for key, report in status.facts["inputs"].items()
        }
