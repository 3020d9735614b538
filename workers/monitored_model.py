"""One model key in the monitor: its shards' marks, what is brought to them, and, by lease, its closer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from stream_calib import metrics
from stream_calib.config import Config
from stream_calib.refit.decider import Decider
from stream_calib.refit.retention import Retention
from stream_calib.snapshot.decision_log import Request
from stream_calib.windows.closer import Closer
from stream_calib.windows.input_batch import InputBatch, Records, judge_records
from stream_calib.windows.intake import Intake
from stream_calib.windows.read_inputs import Signatures
from stream_calib.windows.registration import claim_fusion, claim_generation, claim_topics, register_inputs
from stream_calib.windows.shard_store import Mark
from stream_calib.windows.state_store import SIGNATURE_EPOCH_MS
from stream_calib.windows.vocabulary import Vocabulary
from workers.deployment import State
from workers.late_labels import LateLabels
from workers.pane_metrics import PaneMetrics
from workers.returning_model import bring_forward

CLOSER_LEASE = "closer"
_LEASE_MS = 5_000
_LEASE_RETRY_MS = 500


class ModelPart(NamedTuple):
    """What one poll brought of one partition, for one model key."""

    input_key: str
    records: Records
    signatures: Signatures


class MonitoredModel:
    """`marks`: input key -> how far all shards of the model key have applied it, for the inputs that are read here."""

    def __init__(
        self,
        state: State,
        config: Config,
        member: str,
        clock_ms: Callable[[], int],
        starts: Callable[[], Mapping[str, Mark]],
        idle_inputs: Callable[[], Mapping[str, int]],
        topic_ids: Mapping[str, str],
    ) -> None:
        """`starts`: the first mark of every input, were it new. `idle_inputs`: see Closer. Raises StateError where the
        stored state is of another configuration, TopicRecreatedError where it is of other topics."""
        self._state, self._windows, self._member, self._clock_ms = state, config.windows, member, clock_ms
        self.key, self._fused = state.model_key, config.fused()
        self.marks: dict[str, Mark] = {}
        self._known_signatures: set[int] = set()
        """Those that are in the dictionary's part for `_newest_ms`."""
        self._newest_ms = 0
        """Largest event time of a score that was brought to the shards."""
        self._lease_until = self._lease_asked = 0
        self._open_since: tuple[str, int] = ("", 0)
        self.claim(topic_ids)
        self.intake = Intake(state.shards, lambda: register_inputs(state.shards, state.store, starts()))
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
                state.snapshots.load,
            ),
            idle_inputs=idle_inputs,
            may_expire=self._may_expire,
            vocabulary=Vocabulary.of(config),
            retention=Retention(state.store, config),
        )
        self._late_labels = LateLabels(self.key, state.generation, state.store, state.shards, config)
        self._pane_metrics = PaneMetrics(str(self.key), state.store, config)
        state.shards.attach()

    def go_on_from(self, marks: Mapping[str, Mark]) -> None:
        """Where the key was retired and is back: see bring_forward."""
        bring_forward(self.intake, self._state.shards, marks)

    def claim(self, topic_ids: Mapping[str, str]) -> None:
        """Binds the state to this configuration and these topics; that is lost with a state that was wiped."""
        claim_generation(self._state.store, self._state.semantics)
        if self._fused is not None and self._fused.key == self.key:
            claim_fusion(self._state.store, self._fused.definition)
        claim_topics(self._state.store, topic_ids)

    def attach(self) -> None:
        """See ShardStore."""
        self._state.shards.attach()

    def forget(self) -> None:
        """What was polled may be applied in part, or writes be lost with the server: the shards know where to go on."""
        self.marks.clear()
        self._known_signatures.clear()

    def restart(self, input_key: str) -> None:
        """Reads the input from where the shards are."""
        if input_key not in (*self.intake.inputs.scores, *self.intake.inputs.labels):
            self.intake.register()
        self.marks[input_key] = self.intake.restart(input_key)

    def apply(self, parts: list[ModelPart]) -> list[str]:
        """Brings to the shards what they lack of the parts. Inputs that must be read again, because a shard has lost
        writes; their marks are where from."""
        batches = []
        signatures: Signatures = {}
        shards = self._state.shards
        for part in parts:
            mark = self.marks[part.input_key]
            # Else the key is ahead, and this is read for others; or it is new, and must first read what was before.
            if part.records.start <= mark.next < part.records.end:
                records = part.records.since(mark.next)
                batches.append(judge_records(part.input_key, records, mark.clock_ms, shards.count, shards.settings))
                signatures.update(part.signatures)
        # Before the rows that name them, so that no cell ever has a signature that nobody can read.
        newest_ms = max([self._newest_ms, *(int(b.scores.event_time_ms.max(initial=0)) for b in batches)])
        if newest_ms // SIGNATURE_EPOCH_MS != self._newest_ms // SIGNATURE_EPOCH_MS:
            self._known_signatures.clear()
        self._newest_ms = newest_ms
        new = {h: values for h, values in signatures.items() if h not in self._known_signatures}
        self._state.store.put_signatures(new, newest_ms)
        self._known_signatures.update(new)
        rewinds = self.intake.apply(batches) if batches else {}
        for batch in batches:
            if batch.input_key not in rewinds:
                self._applied(batch)
        self._rewound(rewinds)
        return list(rewinds)

    def behind(self) -> list[str]:
        """Inputs that must be read again; their marks are where from. Found without traffic too, or the panes of a
        shard that lost writes would never close."""
        found = self.intake.behind({i: mark.next for i, mark in self.marks.items()})
        self._rewound(found)
        return list(found)

    def _applied(self, batch: InputBatch) -> None:
        self.marks[batch.input_key] = batch.mark
        metrics.ROWS_JOINED.labels(str(self.key), batch.side).inc(len(batch.row_position))

    def _rewound(self, rewinds: Mapping[str, Mark]) -> None:
        if rewinds:
            # A store that lost rows may have lost what was put before them.
            self._known_signatures.clear()
            self.marks.update(rewinds)

    # --- closing

    @property
    def closes(self) -> bool:
        """Whether this process has the closer's lease, as far as it knows."""
        return self._clock_ms() < self._lease_until

    @property
    def score_watermark_ms(self) -> int | None:
        """As the closer saw it last; None: not known."""
        return self._closer.watermarks.get("s")

    @property
    def last_scored_pane(self) -> int | None:
        """The last pane with a score, as the closer saw it last."""
        return self._closer.last_scored_pane

    def advance(self) -> None:
        """Closes, matures and decides what can be, where this process has the lease. It is renewed well before it ends;
        it only saves work, so nothing hangs on the exact moment."""
        now = self._clock_ms()
        if now >= self._lease_until - _LEASE_MS // 2 and now >= self._lease_asked + _LEASE_RETRY_MS:
            self._lease_asked = now
            if self._state.store.acquire_lease(CLOSER_LEASE, self._member, _LEASE_MS):
                self._lease_until = now + _LEASE_MS
        if now < self._lease_until:
            self._pane_metrics.observe(now, self._closer.watermarks)
            self._closer.advance()
            self._late_labels.look(now)
        else:
            self._pane_metrics.withdraw()

    def release(self) -> None:
        """Gives the lease up."""
        self._lease_until = 0
        self._pane_metrics.withdraw()
        self._state.store.release_lease(CLOSER_LEASE, self._member)

    def _may_expire(self, request: Request, matured: int) -> bool:
        """Unanswered for `settle_panes` matured panes and as much wall time, as this closer has seen it."""
        now = self._clock_ms()
        if self._open_since[0] != request.id:
            self._open_since = (request.id, now)
        waited = now - self._open_since[1] >= self._windows.settle_panes * self._windows.pane_ms
        return self._windows.expire_requests and waited and matured - request.pane >= self._windows.settle_panes
