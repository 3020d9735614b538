"""Making a generation of a model key's state anew from the log, beside the one that is live.

What monitor and refit do is done here in one process, from the earliest records that the log still has. The log is read
outside of any group, so the roles at work are not disturbed; nothing is served by what is made until `state switch`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from stream_calib.config import Config
from stream_calib.config_identity import content_hash, semantic_content
from stream_calib.config_plan import Kind, plan_of_content
from stream_calib.errors import ConfigurationError, PositionLostError, StateError
from stream_calib.events.contracts import ModelKey
from stream_calib.events.label_decoder import LabelDecoder
from stream_calib.redis_clients import RedisClient
from stream_calib.refit.worker import Refitter
from stream_calib.transport.port import Log, OffsetRange, TopicPartition
from stream_calib.windows.input_partitions import InputPartitions
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.read_inputs import ReadBlocks, ReadInput, ReadLabels
from stream_calib.windows.registration import SEMANTICS, stored_content
from stream_calib.windows.shard_store import Mark
from workers.deployment import State, member_name, state_of
from workers.generation_facts import CURSORS
from workers.monitored_model import ModelPart, MonitoredModel
from workers.rebuild_idle import SilentLabels
from workers.refit import ModelRefit
from workers.role import wall_clock_ms

_BLOCKS_A_READ, _LABELS_A_READ = 200, 5_000
_WAIT_S = 0.1
_LOOK_EVERY_MS = 1_000


class Begin(NamedTuple):
    """Where a generation begins, epoch milliseconds; None where nothing has closed yet."""

    ours_ms: int | None
    live_ms: int | None
    """Where the live one begins."""
    labels_from_ms: int | None
    """The log has dropped labels that it took before; scores of that time are left out. None: it has them all."""


class Rebuild:
    """One model key. `step` again and again, until it answers False; what is made is kept, and a Rebuild that is made
    later goes on there."""

    def __init__(
        self,
        client: RedisClient,
        log: Log,
        config: Config,
        key: ModelKey,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """`clock_ms`: wall time, for leases. Raises ConfigurationError where the log does not hold what the
        configuration asks for, StateError where there is nothing to rebuild."""
        self._client, self._log, self._config, self._key, self._clock_ms = client, log, config, key, clock_ms
        self._settings = PaneSettings.of(config)
        self._live = state_of(client, config, key)
        _check_possible(self._live, config)
        self._partitions = InputPartitions(log, config)
        self._labels_from_ms = self._labels_taken_from()
        self.number = self._number()
        self.state: State = state_of(client, config, key, self.number)
        member = member_name()
        self._silent = SilentLabels(log, config.windows, clock_ms)
        self._model = MonitoredModel(
            self.state,
            config,
            member,
            clock_ms,
            self._starts,
            lambda: self._silent.left_out,
            self._partitions.topic_ids(),
        )
        for input_key in self._partitions.keys.values():
            self._model.restart(input_key)
        self._looked_at = 0
        self._decoder = LabelDecoder(config)
        refitter = Refitter(self.state.store, self.state.snapshots, key, config)
        self._refit = ModelRefit(key, self.state.store, self.state.snapshots, refitter, member)

    def step(self) -> bool:
        """Reads a piece, closes panes and answers a request; False where there was nothing to do: it has caught up.

        Raises StateUnavailableError, TransportError; PositionLostError where retention was faster.
        """
        ends = {partition: self._log.end_offset(partition) for partition in self._partitions.keys}
        parts = [self._part(partition, ends[partition]) for partition in self._within_reach(ends)]
        if parts:
            self._model.apply(parts)
        # What came meanwhile is no reason to go on: of a live log there is always something.
        left = any(self._next(partition) < end for partition, end in ends.items())
        waits = self._look_for_silent(at_end=not left)
        before = self._cursors()
        self._model.advance()
        answered = self._refit.answer(self._clock_ms())
        if not (self._model.closes and self._refit.active):
            time.sleep(_WAIT_S)  # those of a rebuild that was killed end by themselves
            return True
        if left or answered is not None or self._cursors() != before:
            return True
        if waits:
            time.sleep(_WAIT_S)
        return waits

    def progress(self) -> tuple[int, int]:
        """Records read, and records there are now, over all inputs."""
        left = sum(max(0, self._log.end_offset(p) - self._next(p)) for p in self._partitions.keys)
        done = sum(self._next(p) - self._partitions.start(p) for p in self._partitions.keys)
        return max(0, done), max(0, done) + left

    def begin(self) -> Begin:
        """What the new generation lacks of the live one."""
        first = self.state.store.read(("first_pane",))["first_pane"]
        fields = self._live.store.read(("first_pane", SEMANTICS))
        live_ms = None
        if fields["first_pane"] is not None and (stored := fields[SEMANTICS]) is not None:
            live_ms = int(fields["first_pane"]) * int(stored_content(stored)["pane_ms"])
        return Begin(None if first is None else int(first) * self._settings.pane_ms, live_ms, self._labels_from_ms)

    def close(self) -> None:
        """Gives the leases up."""
        self._model.release()
        self._refit.release()

    # --- where it begins

    def _number(self) -> int:
        """That of the newest generation of this configuration that is not live, else a new one."""
        wanted = content_hash(semantic_content(self._config))
        for number in reversed(self._live.directory.look().kept):
            if number != self._live.number:
                made_under = state_of(self._client, self._config, self._key, number).store.read(("generation",))
                if made_under["generation"] == wanted:
                    return number
        return self._live.directory.begin()

    def _starts(self) -> Mapping[str, Mark]:
        """Where the log begins; scores not before its labels do, or they would count as unlabelled."""
        starts = {}
        for partition, input_key in self._partitions.keys.items():
            position = self._partitions.starts[input_key]
            if input_key.startswith("s:") and self._labels_from_ms is not None:
                position = max(position, self._log.offset_at(partition, self._labels_from_ms))
            starts[input_key] = Mark(position, None)
        return starts

    def _labels_taken_from(self) -> int | None:
        taken = []
        for partition in self._partitions.keys:
            first = self._partitions.start(partition)
            if self._partitions.sides[partition.topic] == "l" and first > 0:
                records = self._log.read(partition, first, 1)
                taken.append(records[0].append_time_ms if records else self._clock_ms())
        return max(taken, default=None)

    # --- reading

    def _next(self, partition: TopicPartition) -> int:
        return self._model.marks[self._partitions.keys[partition]].next

    def _within_reach(self, ends: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Partitions with unread records that are not too far ahead of the slowest of them."""
        unread = []
        for partition, input_key in self._partitions.keys.items():
            if (mark := self._model.marks[input_key]).next < ends[partition]:
                unread.append((partition, -1 if mark.clock_ms is None else mark.clock_ms))
        if not unread:
            return []
        reach = min(clock for _, clock in unread) + self._config.windows.max_input_skew_ms
        return [partition for partition, clock in unread if clock <= reach]

    def _look_for_silent(self, *, at_end: bool) -> bool:
        """Whether a label partition holds panes up that will be left out before long; on the way there it is only now
        and then looked for."""
        now = self._clock_ms()
        if not at_end and now - self._looked_at < _LOOK_EVERY_MS:
            return False
        self._looked_at = now
        sides, keys = self._partitions.sides, self._partitions.keys
        return self._silent.look({p: (i, self._model.marks[i]) for p, i in keys.items() if sides[p.topic] == "l"})

    def _part(self, partition: TopicPartition, end: int) -> ModelPart:
        position, first = self._next(partition), self._partitions.start(partition)
        if position < first:
            raise PositionLostError(
                f"{partition}: the log begins at {first} by now, the rebuild stands at {position}: retention was"
                f" faster; `stream-calib state drop` generation {self.number}, and begin again",
                {(partition.topic, partition.partition): (position, first)},
            )
        labels = self._partitions.sides[partition.topic] == "l"
        records = self._log.read(partition, position, _LABELS_A_READ if labels else _BLOCKS_A_READ)
        # Nothing up to the end that was asked for before: offsets without records.
        span = OffsetRange(position, records[-1].offset + 1 if records else end)
        read: ReadInput
        if labels:
            read = ReadLabels(records, span, self._decoder, self._settings)
        else:
            read = ReadBlocks(records, span, self._settings.max_clock_skew_ms)
        return ModelPart(self._partitions.keys[partition], read.of(self._key), read.signatures(self._key))

    def _cursors(self) -> dict[str, str | None]:
        return self.state.store.read((*CURSORS, "open_request"))


def _check_possible(live: State, config: Config) -> None:
    fields = live.store.read(("generation", SEMANTICS))
    if fields["generation"] is None:
        raise StateError(f"{live.model_key} has no state yet: start the roles, there is nothing to rebuild")
    if (stored := fields[SEMANTICS]) is None:
        if fields["generation"] == live.generation:
            return
        raise StateError(
            f"the state of {live.model_key} was made before what it was made under was kept with it: start monitor once"
            " with the old configuration, then rebuild"
        )
    changes = plan_of_content(stored_content(stored), config)
    if fresh := [change for change in changes if change.kind is Kind.FRESH]:
        what = ", ".join(change.setting for change in fresh)
        raise ConfigurationError(f"{live.model_key} cannot be rebuilt, because of {what}: {fresh[0].meaning}")
