"""The model keys that one monitor process serves. One whose state cannot be used is left alone, and the others go
on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stream_calib.config import Config
from stream_calib.config_identity import configured_keys
from stream_calib.errors import StateError, StateUnavailableError, TopicRecreatedError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import RedisClient
from stream_calib.windows.clocks import least_of_all
from stream_calib.windows.input_partitions import InputPartitions
from stream_calib.windows.model_registry import ModelRegistry
from stream_calib.windows.new_model import starts_beside
from stream_calib.windows.registration import INPUTS
from stream_calib.windows.shard_store import Mark
from stream_calib.windows.watermarks import last_scored
from workers.alerting_model import ModelConditions
from workers.deployment import State, state_of
from workers.monitored_model import ModelPart, MonitoredModel
from workers.status_board import MemberStatus

_LOG = logging.getLogger(__name__)


class MonitorModels:
    """Everything here is done for each model key. Raises StateUnavailableError when the store is away, and the error of
    a model key where it is a constant of the configuration that cannot be opened, or where no other is left of them."""

    def __init__(
        self,
        client: RedisClient,
        config: Config,
        registry: ModelRegistry,
        member: str,
        clock_ms: Callable[[], int],
        partitions: InputPartitions,
        *,
        idle_inputs: Callable[[], Mapping[str, int]],
    ) -> None:
        self._client, self._config, self._member, self._clock_ms = client, config, member, clock_ms
        self._registry = registry
        self._partitions, self._idle_inputs = partitions, idle_inputs
        self._constants = configured_keys(config)
        self._states: dict[ModelKey, State] = {}
        self._conditions: dict[ModelKey, ModelConditions] = {}
        self.served: dict[ModelKey, MonitoredModel] = {}
        """Model keys that are served, in the order in which they were opened."""
        self.failed: dict[ModelKey, str] = {}
        """Model keys that are left alone -> why."""

    def __contains__(self, key: ModelKey) -> bool:
        return key in self.served or key in self.failed

    def not_ready(self) -> str | None:
        """Why no model key is served although there are some."""
        return None if self.served or not self.failed else "; ".join(self.failed.values())

    def open(self, keys: Iterable[ModelKey]) -> bool:
        """Serves these too; True where there was a new one."""
        new = [key for key in keys if key not in self]
        for key in new:
            self._guarded(key, lambda key=key: self._open(key))  # type: ignore[misc]  # mypy cannot infer it
        return bool(new)

    def _open(self, key: ModelKey) -> None:
        state = self._states[key] = state_of(self._client, self._config, key)
        retirement = self._registry.returning(key, lambda: self._beside_others(key))
        marks = {} if retirement is None else retirement.marks
        model = MonitoredModel(
            state,
            self._config,
            self._member,
            self._clock_ms,
            lambda: self._starts(key, marks),
            self._idle_inputs,
            self._partitions.topic_ids(),
        )
        if retirement is not None:
            model.go_on_from(marks)
            self._registry.returned(key)
        self._conditions[key] = ModelConditions(
            key,
            state.generation,
            state.store,
            state.snapshots,
            self._config,
            lambda pane: self._scored_later(key, pane),
        )
        self.served[key] = model

    def let_go(self, gone: Callable[[ModelKey], bool]) -> None:
        """Stops to serve keys that were retired, but for constants of the configuration."""
        for key in [key for key in self._states if key not in self._constants and gone(key)]:
            self._leave(key)
            self.served.pop(key, None)
            self.failed.pop(key, None)
            self._conditions.pop(key, None)
            del self._states[key]
            _LOG.info("%s was retired; it is left", key)

    def _starts(self, key: ModelKey, returns_at: Mapping[str, Mark]) -> dict[str, Mark]:
        """`returns_at`: of a key that was retired."""
        if self._states[key].store.read((INPUTS,))[INPUTS] is not None:
            return {i: Mark(position, None) for i, position in self._partitions.starts.items()}
        starts = self._beside_others(key)
        back = {i: mark._replace(first_clock_ms=mark.clock_ms) for i, mark in returns_at.items() if i in starts}
        return starts | back

    def _beside_others(self, key: ModelKey) -> dict[str, Mark]:
        others = [(s.shards, s.store) for other, s in self._states.items() if other != key and other in self.served]
        beside = starts_beside(others)
        starts = dict(beside)  # others may know of partitions that this process does not see yet
        for partition, input_key in self._partitions.keys.items():
            mark = beside.get(input_key)
            if mark is None:
                # One that the others lack was added while they run; all of it is theirs and this key's.
                begins = self._partitions.starts[input_key] if others else self._partitions.first_start(partition)
                mark = Mark(begins, None)
            elif mark.next < (begins := self._partitions.start(partition)):
                mark = mark._replace(next=begins)  # what is gone was never this key's to read
            starts[input_key] = mark
        return starts

    def _guarded(self, key: ModelKey, work: Callable[[], None]) -> None:
        """Does the work of one model key. What is wrong with its state is no reason to stop for the others."""
        try:
            work()
        except StateUnavailableError:
            raise
        except (StateError, TopicRecreatedError) as error:
            opened = self.served.pop(key, None)
            # An older key that cannot be opened says nothing of a constant that is opened after it.
            if key in self._constants if opened is None else self._constants and not self.served:
                raise
            self.failed[key] = str(error)
            _LOG.error("%s is left alone, other models go on: %s", key, error)

    def _each(self, work: Callable[[MonitoredModel], None]) -> None:
        for key, model in list(self.served.items()):
            self._guarded(key, lambda model=model: work(model))  # type: ignore[misc]  # mypy cannot infer it

    # --- inputs

    def claim_and_attach(self) -> None:
        """Before partitions are read that others may have read; claims are lost with a state that was wiped."""
        topic_ids = self._partitions.topic_ids()

        def work(model: MonitoredModel) -> None:
            model.claim(topic_ids)
            model.attach()

        self._each(work)

    def register(self) -> None:
        """Inputs that are new, and those that a state or a shard has lost."""
        self._each(lambda model: model.intake.register())

    def restart(self, input_key: str) -> None:
        """The input is read from where the shards are."""
        self._each(lambda model: model.restart(input_key))

    def drop(self, input_key: str) -> None:
        """The input is not read here any more."""
        for model in self.served.values():
            model.marks.pop(input_key, None)

    def forget(self) -> None:
        """See MonitoredModel."""
        for model in self.served.values():
            model.forget()

    def position(self, input_key: str) -> int | None:
        """The least over the model keys, None where there is none yet."""
        return min((model.marks[input_key].next for model in self.served.values()), default=None)

    def clock_ms(self, input_key: str) -> int | None:
        """The least clock over the model keys, None where one has none."""
        return least_of_all([model.marks[input_key].clock_ms for model in self.served.values()])

    def apply(self, parts_of: Callable[[ModelKey], list[ModelPart]]) -> set[str]:
        """Brings each model key what it lacks; inputs that must be read again."""
        rewound: set[str] = set()
        self._each(lambda model: rewound.update(model.apply(parts_of(model.key))))
        self._reclaim(rewound)
        return rewound

    def behind(self) -> set[str]:
        """Inputs that must be read again, found without traffic too."""
        found: set[str] = set()

        def work(model: MonitoredModel) -> None:
            self._states[model.key].check()
            found.update(model.behind())

        self._each(work)
        self._reclaim(found)
        return found

    def _reclaim(self, rewound: set[str]) -> None:
        """A store that lost rows may have lost whose it is."""
        if rewound:
            topic_ids = self._partitions.topic_ids()
            self._each(lambda model: model.claim(topic_ids))

    # --- closing, statuses

    def advance(self) -> None:
        """Closes, matures and decides what can be, where this process has the lease, and looks at the conditions of the
        model keys."""

        def work(model: MonitoredModel) -> None:
            model.advance()
            if model.closes:
                self._conditions[model.key].look(self._clock_ms(), model.score_watermark_ms, model.last_scored_pane)

        self._each(work)

    def _scored_later(self, key: ModelKey, pane: int) -> ModelKey | None:
        """Another version of the model that was scored after the pane; of those that were scored last in the pane, the
        one with the greatest name stands for the model."""
        for other, state in self._states.items():
            if other.model == key.model and other != key and other in self.served:
                last = last_scored(state.shards.progress())
                if last is not None and (last, other.version) > (pane, key.version):
                    return other
        return None

    def release(self) -> None:
        """Gives up leases and statuses."""
        for key in self._states:
            self._leave(key)

    def _leave(self, key: ModelKey) -> None:
        self._states[key].board.drop("monitor", self._member)
        if key in self.served:
            self.served[key].release()

    def exchange_statuses(self, role: str, facts: Mapping[str, Any]) -> list[MemberStatus]:
        """Puts this process's status on the board of each model key, and takes those of all other processes."""
        now = self._clock_ms()
        others: dict[tuple[str, str], MemberStatus] = {}
        for key, state in self._states.items():
            own: dict[str, Any] = {"closer": key in self.served and self.served[key].closes}
            if key in self.failed:
                own["failed"] = self.failed[key]
            state.board.put(MemberStatus(role, self._member, now, {**facts, **own}))
            for status in state.board.all(now):
                name = (status.role, status.member)
                if name != (role, self._member) and (name not in others or others[name].time_ms < status.time_ms):
                    others[name] = status
        return list(others.values())

    def own_status(self, role: str, facts: Mapping[str, Any]) -> MemberStatus:
        """What this process says of itself now, but for what concerns one model key."""
        return MemberStatus(role, self._member, self._clock_ms(), dict(facts))
