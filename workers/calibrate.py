"""calibrate: every score gets exactly one output (or dead letter), and its row goes on to the monitor, in one
commit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from typing import Any

import numpy as np

from stream_calib import metrics
from stream_calib.config import Config
from stream_calib.config_identity import configured_keys, semantic_content
from stream_calib.errors import FencedError, PositionLostError, StateUnavailableError, TransportError
from stream_calib.events.contracts import Decoded
from stream_calib.events.control import clock_record
from stream_calib.snapshot.served_models import ServedModels
from stream_calib.transport.port import Consumer, Log, Outgoing, PolledBatch, StartAt, TopicPartition
from stream_calib.windows.generations import LiveStates
from stream_calib.windows.redis_news import PointerNews
from stream_calib.windows.registration import check_blocks
from workers.batch_stages import Batch, Batches
from workers.calibrate_status import CalibrateStatus
from workers.calibrate_transform import Calibrated, Transform
from workers.deployment import connect_state, member_name, open_gaps, open_log, open_registry
from workers.input_gaps import Gap, InputGaps, skippable
from workers.input_metrics import InputMetrics
from workers.rejects import RejectCounts
from workers.role import Role, wall_clock_ms
from workers.status_board import StatusBoard

_LOG = logging.getLogger(__name__)

GROUP = "calibrate"
_POLL_MS = 100
_CLOCK_EVERY_MS = 1_000
_COMMIT_PASSED_EVERY_MS = 1_000


class Calibrate(Role):
    """Consumes scores; outputs, blocks, dead letters and positions are one commit."""

    name = "calibrate"

    def __init__(self, config: Config, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        """`clock_ms`: wall time, for clock records and statuses."""
        self._config = config
        self._clock_ms = clock_ms
        self._opened = ExitStack()
        self._batches = Batches(self.name, config.telemetry)
        self._rejected = RejectCounts()
        self._clock_at: dict[TopicPartition, int] = {}
        self._passed: dict[TopicPartition, int] = {}
        self._passed_at = 0
        self._batch_at_s = 0.0
        self._fitting: set[TopicPartition] = set()
        self._waiting: str | None = None

    def open(self) -> None:
        self.close()
        config, member = self._config, member_name()
        client = self._opened.enter_context(closing(connect_state(config)))
        states = LiveStates(client)
        for key in configured_keys(config):
            check_blocks(key, states(key), semantic_content(config))
        log = self._opened.enter_context(open_log(config))
        status = CalibrateStatus(config, self.name, member, lambda key: StatusBoard(client, key), self._clock_ms)
        self._opened.callback(status.drop)
        news = PointerNews(config.redis)
        self._opened.callback(news.close)
        models = ServedModels(
            config,
            open_registry(client, config),
            states,
            clock_ms=lambda: time.monotonic_ns() // 1_000_000,
            news=news.came,
        )
        start = StartAt(earliest=config.log.start == "earliest")
        consumer = self._opened.enter_context(log.consumer(GROUP, [config.topics.scores], member=member, start=start))
        self.work_with(log, consumer, models, status, open_gaps(client, config))

    def work_with(
        self, log: Log, consumer: Consumer, models: ServedModels, status: CalibrateStatus, gaps: InputGaps
    ) -> None:
        """What the steps use from now on."""
        self._log, self._consumer, self._models, self._status, self._gaps = log, consumer, models, status, gaps
        self._transform = Transform(self._config, models.admit)
        self._odd: dict[str, int] = {}
        self._input_metrics = InputMetrics(self.name, log, self._config)
        self._opened.callback(self._input_metrics.close)
        self._passed.clear()
        self._fitting.clear()
        self._joined_by = self._clock_ms() + 2 * self._config.log.session_timeout_ms

    def step(self) -> bool:
        self._models.refresh()
        waited_for = self._models.waited_for()
        if waited_for:
            self._wait_for(", ".join(map(str, waited_for)))
            self._report()
            return False
        self._waiting = None
        self._keep_interval()
        asked_at = self._clock_ms()
        with self._batches.next() as batch:
            with batch.stage("fetch"):
                polled = self._poll()
            batch.read(self._config.topics.scores, len(polled.records))
            try:
                if polled.records:
                    self._serve(batch, polled)
                self._write_clocks(polled, asked_at)
                self._commit_passed(polled, asked_at)
            except FencedError as error:
                _LOG.info("calibrate drops a batch: %s", error)
                self._passed.clear()
        self._report()
        # The poll has waited already.
        return True

    def ready(self) -> str | None:
        if self._waiting is None and self._clock_ms() < self._joined_by and not self._consumer.assignment():
            return "waits for partitions"  # later it is a spare: there are more members than partitions
        return self._waiting

    def close(self) -> None:
        self._opened.close()

    def _poll(self) -> PolledBatch:
        serving = self._config.serving
        try:
            # A short wait, so that a new snapshot is seen within `snapshot_poll` while there is no traffic too.
            polled = self._consumer.poll(serving.max_batch_records, min(_POLL_MS, serving.snapshot_poll_ms))
        except PositionLostError as error:
            if self._config.log.on_position_lost == "stop":
                raise
            self._skip(error, self._clock_ms())
            return PolledBatch()
        try:
            self._require_partitions(polled)
        except TransportError:
            self._go_back(polled)
            raise
        self._batch_at_s = time.monotonic() if 0 < len(polled.records) < serving.max_batch_records else 0.0
        return polled

    def _serve(self, batch: Batch, polled: PolledBatch) -> None:
        transform, records = self._transform, polled.records
        try:
            with batch.stage("decode"):
                decoded, scores = transform.decode(records)
            with batch.stage("apply"):
                calibrated = transform.calibrate(scores, self._models.serving)
        except StateUnavailableError:
            self._go_back(polled)
            raise
        with batch.stage("encode"):
            outputs = transform.encode(records, decoded, calibrated)
        with batch.stage("commit"):
            self._consumer.commit(outputs, {p: r.end for p, r in polled.ranges.items()})
        self._committed(polled.ranges)
        self._count(polled, decoded, calibrated)

    def _keep_interval(self) -> None:
        """Waits where the last batch was polled less than `batch_interval` ago and was not a full one."""
        rest_s = self._batch_at_s + self._config.serving.batch_interval_ms / 1000 - time.monotonic()
        if rest_s > 0:
            time.sleep(rest_s)

    def _require_partitions(self, polled: PolledBatch) -> None:
        """Raises TransportError where `blocks` or `calibrated` lacks a partition that was read from: what is made of it
        could go nowhere."""
        new = (polled.ranges.keys() | polled.at_end) - self._fitting
        if not new:
            return
        topics, highest = self._config.topics, max(p.partition for p in new)
        for written in (topics.blocks, topics.calibrated):
            if highest >= (count := self._log.partitions(written)):
                raise TransportError(
                    f"{topics.scores} has a partition {highest}, and {written} has only {count} partitions: add"
                    f" partitions to {topics.blocks} and {topics.calibrated}, they must have as many as"
                    f" {topics.scores}; calibrate goes on by itself then, and nothing is lost"
                )
        self._fitting |= new

    def _go_back(self, polled: PolledBatch) -> None:
        """The batch is polled again: nothing of it was written."""
        for partition, positions in polled.ranges.items():
            self._consumer.seek(partition, positions.start)

    def _skip(self, error: PositionLostError, now: int) -> None:
        """Goes on at what is left of the log (log.on_position_lost = "skip"); first the gap is on record."""
        for (topic, number), (position, left_from) in skippable(error).items():
            gap = Gap(self.name, topic, number, self._log.topic_id(topic), position, left_from, now)
            self._gaps.record(gap)
            partition = TopicPartition(topic, number)
            self._consumer.seek(partition, left_from)
            self._passed[partition] = left_from

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
            self._committed(due)

    def _commit_passed(self, polled: PolledBatch, now: int) -> None:
        """Where a poll only passed the ends of transactions, the position follows now and then."""
        if not polled.records:
            self._passed.update({p: r.end for p, r in polled.ranges.items()})
        if self._passed and now - self._passed_at >= _COMMIT_PASSED_EVERY_MS:
            assigned = self._consumer.assignment()
            positions = {p: end for p, end in self._passed.items() if p in assigned}
            if positions:
                self._consumer.commit([], positions)
            self._passed.clear()
            self._passed_at = now

    def _committed(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._passed.pop(partition, None)

    def _count(self, polled: PolledBatch, decoded: Decoded, calibrated: Calibrated) -> None:
        scores = calibrated.scores
        rows = np.bincount(scores.key_index, minlength=len(scores.keys)).tolist()
        for key, how, count in zip(scores.keys, calibrated.served, rows, strict=True):
            metrics.SCORES_SERVED.labels(str(key), how.status).inc(count)
        left_out = np.bincount(scores.key_index[~calibrated.counted], minlength=len(scores.keys)).tolist()
        for key, count in zip(scores.keys, left_out, strict=True):
            metrics.SCORES_NOT_COUNTED.labels(str(key)).inc(count)
        metrics.SCORE_TOMBSTONES.inc(len(decoded.tombstones))
        odd = self._transform.oddities()
        for kind, count in odd.items():
            metrics.SCORE_ODDITIES.labels(kind).inc(count - self._odd.get(kind, 0))
        self._odd = odd
        self._rejected.read(self._config.topics.scores, len(polled.records))
        self._rejected.add(polled.records, [*decoded.rejects, *(refused.reject for refused in scores.refused)])

    def _wait_for(self, keys: str) -> None:
        waiting = f"waits for a first snapshot of {keys} (serving.bootstrap = wait)"
        if waiting != self._waiting:
            _LOG.warning("calibrate %s", waiting)
        self._waiting = waiting

    def _report(self) -> None:
        now = self._clock_ms()
        if self._input_metrics.due(now):
            self._input_metrics.observe(now, {p: self._consumer.position(p) for p in self._consumer.assignment()}, {})
        self._status.report(self._models, self._facts)

    def _facts(self) -> dict[str, Any]:
        return {
            "partitions": sorted(str(p) for p in self._consumer.assignment()),
            **self._rejected.facts(),
            **self._input_metrics.facts(),
        }
