"""calibrate: every score gets exactly one output (or dead letter), and its row goes on to the monitor, in one
commit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing

import numpy as np
from numpy.typing import NDArray

from stream_calib import metrics
from stream_calib.config import Config
from stream_calib.errors import FencedError, StateUnavailableError
from stream_calib.events.blocks import blocks_of
from stream_calib.events.contracts import Decoded, ModelKey
from stream_calib.events.control import clock_record
from stream_calib.events.dead_letters import dead_letters
from stream_calib.events.outputs import Headers, OutputEncoder
from stream_calib.events.score_decoder import ScoreDecoder
from stream_calib.snapshot.follower import Served, SnapshotFollower
from stream_calib.transport.port import Outgoing, PolledBatch, Record, TopicPartition
from workers.deployment import member_name, model_key, open_log, open_state
from workers.rejects import RejectCounts
from workers.role import Role, wall_clock_ms
from workers.status_board import MemberStatus

_LOG = logging.getLogger(__name__)

GROUP = "calibrate"
_POLL_MS = 100
_CLOCK_EVERY_MS = 1_000
_STATUS_EVERY_MS = 1_000
_AWAY_AFTER_MS = 1_000


class Transform:
    """Records of one batch to outputs, blocks and dead letters. Pure but for the decoder's counters."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._key: ModelKey = model_key(config)
        self._decoder = ScoreDecoder(config)
        self._encoder = OutputEncoder(config)

    def apply(self, records: Sequence[Record], served: Served | None) -> tuple[list[Outgoing], Decoded]:
        """Everything that the batch writes, in an order that keeps each partition's; all of it by one snapshot.

        Without a snapshot the raw score is served, marked `identity`.
        """
        decoded = self._decoder.decode(records)
        batch = decoded.scores
        assert batch is not None
        version = served.version if served else ""
        p = served.map.apply(batch.score, batch.signature_index, batch.signatures) if served else batch.score
        outputs = self._encoder.encode(records, batch, p, version)
        if self._config.records.on_reject == "passthrough":
            outputs += self._encoder.passthrough(records, decoded.rejects)
        outputs += dead_letters(self._config.topics.dead_letters, records, decoded.rejects)
        for partition, rows, clock in self._segments(records, decoded):
            for block in blocks_of(batch, rows, self._key, version, p):
                outputs.append(Outgoing(self._config.topics.blocks, None, block, (), partition))
            if clock is not None:
                value, headers = clock
                outputs.append(Outgoing(self._config.topics.blocks, None, value, headers, partition))
        return outputs, decoded

    def _segments(
        self, records: Sequence[Record], decoded: Decoded
    ) -> Iterator[tuple[int, NDArray[np.intp], tuple[bytes, Headers] | None]]:
        """(partition, rows of the batch up to a clock record or the partition's end, that clock record), in order."""
        batch = decoded.scores
        assert batch is not None
        partition_of = np.array([record.source.partition for record in records], dtype=np.intp)
        row_partition = partition_of[batch.record_index]
        for partition in np.unique(partition_of).tolist():
            rows = np.flatnonzero(row_partition == partition)
            done = 0
            for clock in decoded.clocks:
                if partition_of[clock.record_index] == partition:
                    stop = int(np.searchsorted(batch.record_index[rows], clock.record_index))
                    yield partition, rows[done:stop], clock_record(clock.clock_ms, end=clock.end)
                    done = stop
            yield partition, rows[done:], None


class Calibrate(Role):
    """Consumes scores; outputs, blocks, dead letters and positions are one commit."""

    name = "calibrate"

    def __init__(self, config: Config, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        """`clock_ms`: wall time, for clock records and statuses."""
        self._config = config
        self._clock_ms = clock_ms
        self._member = member_name()
        self._transform = Transform(config)
        self._opened = ExitStack()
        self._rejected = RejectCounts()
        self._reported_version: str | None = None
        self._status_at = 0
        self._clock_at: dict[TopicPartition, int] = {}
        self._waiting = self._status_failed = False

    def open(self) -> None:
        self.close()
        self._state = state = self._opened.enter_context(closing(open_state(self._config)))
        log = self._opened.enter_context(open_log(self._config))
        self._opened.callback(lambda: state.board.drop(self.name, self._member))
        consumer = log.consumer(GROUP, [self._config.topics.scores], member=self._member)
        self._consumer = self._opened.enter_context(consumer)
        serving = self._config.serving
        self._follower = SnapshotFollower(
            self._state.store,
            list(self._config.scores.attributes),
            poll_ms=serving.snapshot_poll_ms,
            max_staleness_ms=serving.max_snapshot_staleness_ms,
            clock_ms=lambda: time.monotonic_ns() // 1_000_000,
        )

    def step(self) -> bool:
        served = self._follower.current()
        if served is None and self._config.serving.bootstrap == "wait":
            if not self._waiting:
                _LOG.warning("calibrate waits for a first snapshot (serving.bootstrap = wait)")
            self._waiting = True
            self._report(served)
            return False
        asked_at = self._clock_ms()
        # A short wait, so that a new snapshot is seen within `snapshot_poll` while there is no traffic too.
        polled = self._consumer.poll(
            self._config.serving.max_batch_records, min(_POLL_MS, self._config.serving.snapshot_poll_ms)
        )
        try:
            if polled.records:
                outputs, decoded = self._transform.apply(polled.records, served)
                self._consumer.commit(outputs, {p: r.end for p, r in polled.ranges.items()})
                self._count(served, polled.records, decoded)
            self._write_clocks(polled, asked_at)
        except FencedError as error:
            _LOG.info("calibrate drops a batch: %s", error)
        self._report(served)
        # The poll has waited already.
        return True

    def _write_clocks(self, polled: PolledBatch, now: int) -> None:
        """At the end of its input, a partition's clock follows wall time, so that panes close without traffic.

        `now`: when the poll began. Of what came after it, while the batch was worked off or the process stood still,
        nothing is known, and a clock that was ahead of it would make it late.
        """
        if self._config.serving.clock_records == "off":
            return
        due = [p for p in sorted(polled.at_end) if now - self._clock_at.get(p, 0) >= _CLOCK_EVERY_MS]
        if due:
            value, headers = clock_record(now - self._config.windows.score_lateness_ms)
            topic = self._config.topics.blocks
            clocks = [Outgoing(topic, None, value, headers, p.partition) for p in due]
            self._consumer.commit(clocks, {p: self._consumer.position(p) for p in due})
            self._clock_at.update(dict.fromkeys(due, now))

    def _count(self, served: Served | None, records: Sequence[Record], decoded: Decoded) -> None:
        assert decoded.scores is not None
        status = "calibrated" if served else "identity"
        metrics.SCORES_SERVED.labels(str(self._state.model_key), status).inc(len(decoded.scores.score))
        metrics.SCORE_TOMBSTONES.inc(len(decoded.tombstones))
        self._rejected.add(records, decoded.rejects)

    def _report(self, served: Served | None) -> None:
        now = self._clock_ms()
        version = served.version if served else ""
        metrics.SNAPSHOT_STALENESS_SECONDS.labels(str(self._state.model_key)).set(self._follower.staleness_ms / 1000)
        due = version != self._reported_version or now - self._status_at >= _STATUS_EVERY_MS
        # With the state away a status cannot be written, and must not hold up serving.
        away = self._follower.staleness_ms > self._config.serving.snapshot_poll_ms + _AWAY_AFTER_MS
        if not due or away:
            return
        facts = {
            "snapshot": version,
            "damaged": self._follower.damaged,
            "behind": self._follower.behind,
            "partitions": sorted(str(p) for p in self._consumer.assignment()),
            "rejected": dict(self._rejected.by_reason),
        }
        self._status_at, self._reported_version = now, version
        try:
            self._state.board.put(MemberStatus(self.name, self._member, now, facts))
        except StateUnavailableError as error:
            # A state that is full can still be read, and that is all that serving needs.
            if not self._status_failed:
                _LOG.warning("calibrate serves on, but cannot write its status: %s", error)
            self._status_failed = True
        else:
            self._status_failed = False

    def close(self) -> None:
        self._opened.close()
