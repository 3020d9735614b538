"""monitor: brings blocks and labels to the joins of all model keys, and (for each key one monitor, by lease) closes,
matures and decides panes.

What is read is read once for all keys: from the least position over them; each takes what it lacks
(monitored_model.py).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from typing import Any

from stream_calib import fault_points
from stream_calib.config import Config
from stream_calib.config_identity import configured_keys
from stream_calib.errors import PositionLostError, StateUnavailableError, TooManyModelsError, TransportError
from stream_calib.events.contracts import ModelKey, Reject
from stream_calib.events.dead_letters import dead_letters
from stream_calib.events.label_decoder import LabelDecoder
from stream_calib.transport.port import OffsetRange, PolledBatch, Record, TopicPartition
from stream_calib.windows.input_partitions import InputPartitions
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.read_inputs import ReadBlocks, ReadInput, ReadLabels
from workers.alerting_deployment import DeploymentConditions
from workers.batch_stages import Batches
from workers.deployment import (
    connect_state,
    member_name,
    open_board,
    open_deployment_store,
    open_gaps,
    open_log,
    open_registry,
)
from workers.embedded_trimming import EmbeddedTrimming
from workers.input_gaps import Gap, skippable
from workers.input_metrics import InputMetrics
from workers.monitor_commits import PositionCommits
from workers.monitor_models import MonitorModels
from workers.monitor_reports import MonitorReports
from workers.monitored_model import ModelPart
from workers.poll_size import PollSize
from workers.rejects import RejectCounts
from workers.rewinds import Rewinds
from workers.role import Role, wall_clock_ms

_LOG = logging.getLogger(__name__)

GROUP = "monitor"
_POLL_MS = 20
_EVERY_MS = 1_000


class Monitor(Role):
    """Its only output is the state (and dead letters, at least once), so repeating any of its work changes nothing."""

    name = "monitor"

    def __init__(self, config: Config, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        """`clock_ms`: wall time, for idleness, leases and statuses only."""
        self._config = config
        self._settings = PaneSettings.of(config)
        self._clock_ms = clock_ms
        self._member = member_name()
        self._decoder = LabelDecoder(config)
        self._opened = ExitStack()
        self._rejected = RejectCounts()
        self._rewinds = Rewinds(clock_ms)
        self._batches = Batches(self.name, config.telemetry)
        self._batch = self._batches.next()

    def open(self) -> None:
        self.close()
        config = self._config
        client = self._opened.enter_context(closing(connect_state(config)))
        self._log = log = self._opened.enter_context(open_log(config))
        self._partitions = InputPartitions(log, config)
        self._gaps = open_gaps(client, config)
        own = open_deployment_store(client, config), open_board(client, config)
        self._conditions = DeploymentConditions(log, *own, config, self._partitions.sides, self._clock_ms)
        self._registry = open_registry(client, config)
        self._positions: dict[TopicPartition, int] = {}
        """Where the next poll begins: the least position over the model keys."""
        self._reports = MonitorReports(config.windows, self._partitions, self._positions, self._clock_ms)
        self._poll_size = PollSize()
        self._looked_at = 0
        self._looked_for_partitions_at = self._clock_ms()
        self._models = MonitorModels(
            client,
            config,
            self._registry,
            self._member,
            self._clock_ms,
            self._partitions,
            idle_inputs=lambda: self._reports.idle_inputs(self._models),
        )
        self._opened.callback(self._models.release)
        for key in configured_keys(config):
            self._registry.add(key)
        self._models.open(self._registry.known())
        self._consumer = self._opened.enter_context(log.consumer(GROUP, self._partitions.topics, member=self._member))
        self._commits = PositionCommits(self._consumer, self._positions, self._clock_ms)
        self._trimming = EmbeddedTrimming(log, client, config, self._clock_ms)
        self._input_metrics = InputMetrics(self.name, log, config)
        self._opened.callback(self._input_metrics.close)

    def step(self) -> bool:
        try:
            with self._batches.next() as self._batch:
                return self._step()
        except (StateUnavailableError, TransportError):
            self._models.forget()
            self._positions.clear()
            self._reports.forget()
            raise

    def _step(self) -> bool:
        polled = self._poll()
        self._look_for_partitions()
        if not self._take_over() and polled.ranges:
            self._apply(polled)
        self._consumer.pause(self._reports.note(polled, self._models))
        self._commits.commit(self._batch)
        now = self._clock_ms()
        if now - self._looked_at >= _EVERY_MS:
            self._looked_at = now
            registered = self._registry.look()
            self._models.let_go(registered.gone)
            self._open_models(registered.known)
            behind = self._models.behind()
            self._seek([p for p in self._positions if self._partitions.keys[p] in behind])
            self._tell_rewinds(behind)
            if self._input_metrics.due(now):
                clocks_ms = {p: self._models.clock_ms(self._partitions.keys[p]) for p in self._positions}
                self._input_metrics.observe(now, self._positions, clocks_ms)
            self._reports.look_at(self._conditions, self._models)
            self._trimming.look(registered.known)
            self._gaps.close_past(now, self._settings.horizon_ms + self._settings.label_lateness_ms)
        self._reports.exchange(self.name, self._facts(), self._models)
        self._models.advance()
        # The poll has waited already.
        return True

    def _facts(self) -> dict[str, Any]:
        return self._rejected.facts() | self._input_metrics.facts() | self._rewinds.facts()

    def ready(self) -> str | None:
        return self._models.not_ready()

    def close(self) -> None:
        self._opened.close()

    # --- reading

    def _poll(self) -> PolledBatch:
        try:
            with self._batch.stage("fetch"):
                return self._consumer.poll(self._poll_size.records, _POLL_MS)
        except PositionLostError as error:
            self._go_on(error)
            return PolledBatch()

    def _go_on(self, error: PositionLostError) -> None:
        """Where a position was lost that is not the shards' own, seeking mends it; else the operator has decided."""
        took_over = self._take_over()
        lost = {p: at for p, at in error.lost.items() if TopicPartition(*p) in self._positions}
        strayed = [TopicPartition(*p) for p, at in lost.items() if self._positions[TopicPartition(*p)] != at[0]]
        for partition in strayed:
            self._consumer.seek(partition, self._positions[partition])
        if took_over or strayed or (error.lost and not lost):
            return  # of others nothing is known yet
        if self._config.log.on_position_lost == "stop":
            raise error
        for (topic, number), (first, end) in skippable(error).items():
            partition = TopicPartition(topic, number)
            if partition not in self._positions:
                continue
            gap = Gap(self.name, topic, number, self._log.topic_id(topic), first, end, self._clock_ms())
            self._gaps.record(gap)
            # A range without records, as between two transactions: every shard goes on from its end.
            self._apply(PolledBatch(ranges={partition: OffsetRange(first, end)}))
            self._consumer.seek(partition, self._positions[partition])

    def _look_for_partitions(self) -> None:
        now = self._clock_ms()
        unknown = self._consumer.assignment() - self._partitions.keys.keys()
        if unknown or now - self._looked_for_partitions_at >= self._config.log.metadata_max_age_ms:
            self._looked_for_partitions_at = now
            for partition in self._partitions.look():
                _LOG.info("%s was added; it is read from %s", partition, self._partitions.start(partition))
            self._models.register()

    def _take_over(self) -> bool:
        """Newly assigned partitions are read from where the shards are. True: what was polled before is discarded."""
        assigned = self._consumer.assignment() & self._partitions.keys.keys()
        for partition in list(self._positions):
            if partition not in assigned:
                del self._positions[partition]
                self._models.drop(self._partitions.keys[partition])
        new = assigned - self._positions.keys()
        if new:
            self._models.claim_and_attach()
            # What was polled before this belongs to no run of the server that is known.
            self._seek(self._positions)
        for partition in sorted(new):
            self._models.restart(self._partitions.keys[partition])
        self._seek(new)
        self._commits.moved(new)
        return bool(new)

    def _seek(self, partitions: Iterable[TopicPartition]) -> None:
        """Polls go on from the least position over the model keys."""
        for partition in sorted(partitions):
            self._positions[partition] = position = self._position(partition)
            self._consumer.seek(partition, position)

    def _position(self, partition: TopicPartition) -> int:
        """The least over the model keys. Before the first one is found, what is read is only looked through for it; it
        begins where the log does."""
        key = self._partitions.keys[partition]
        least = self._models.position(key)
        return self._positions.get(partition, self._partitions.starts[key]) if least is None else least

    def _apply(self, polled: PolledBatch) -> None:
        by_partition: dict[TopicPartition, list[Record]] = defaultdict(list)
        for record in polled.records:
            by_partition[record.source].append(record)
        read: dict[TopicPartition, ReadInput] = {}
        for partition, span in polled.ranges.items():
            if partition not in self._positions:
                continue  # a partition that was added, and is not registered yet
            if span.start != self._positions[partition]:
                # The consumer went elsewhere (to a committed position); nothing between may be left out.
                self._seek([partition])
                continue
            self._batch.read(partition.topic, len(by_partition[partition]))
            self._rejected.read(partition.topic, len(by_partition[partition]))
            with self._batch.stage("decode"):
                read[partition] = self._read(partition, by_partition[partition], span)
            self._refuse(by_partition[partition], read[partition].rejects)
        self._poll_size.learn(len(polled.records), sum(one.rows for one in read.values()))
        parts = {p: self._partitions.keys[p] for p in read}
        with self._batch.stage("apply"):
            rewound = self._models.apply(
                lambda key: [ModelPart(parts[p], one.of(key), one.signatures(key)) for p, one in read.items()]
            )
        self._commits.moved(read)
        for partition in read:
            end = self._positions[partition] = polled.ranges[partition].end
            if self._position(partition) != end:
                self._seek([partition])  # a model key that is new, or a shard that lost writes
        self._tell_rewinds(rewound)

    def _read(self, partition: TopicPartition, records: list[Record], span: OffsetRange) -> ReadInput:
        if self._partitions.sides[partition.topic] == "l":
            return ReadLabels(records, span, self._decoder, self._settings)
        blocks = ReadBlocks(records, span, self._settings.max_clock_skew_ms)
        for key in blocks.keys:
            if key not in self._models:
                self._meet(key, blocks, self._partitions.keys[partition])
        return blocks

    def _meet(self, key: ModelKey, blocks: ReadBlocks, input_key: str) -> None:
        """A model key's inputs are on record before anything of it is passed; but what was written before it was
        retired does not bring it back."""
        if self._registry.look().is_past(key, input_key, blocks.last_offset(key)):
            return
        try:
            self._registry.add(key)
        except TooManyModelsError as error:
            blocks.refuse(key, str(error))
        else:
            self._open_models([key])

    def _open_models(self, keys: Iterable[ModelKey]) -> None:
        """Keys that are new here; they may need what was read before."""
        if self._models.open(keys):
            for partition in self._positions:
                self._models.restart(self._partitions.keys[partition])
            self._seek([p for p, at in self._positions.items() if self._position(p) != at])

    def _tell_rewinds(self, input_keys: Iterable[str]) -> None:
        wanted = set(input_keys)
        for partition in [p for p in self._positions if self._partitions.keys[p] in wanted]:
            self._rewinds.tell(partition, self._positions[partition])

    def _refuse(self, records: list[Record], rejects: list[Reject]) -> None:
        """Dead letters first: where they cannot be written, the position is not passed."""
        if rejects:
            topic, most = self._config.topics.dead_letters, self._config.records.max_dead_letter_bytes
            fault_points.before("dead_letters.write")
            self._log.produce(dead_letters(topic, records, rejects, most))
            fault_points.after("dead_letters.write")
            self._rejected.add(records, rejects)
