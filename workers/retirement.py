"""Taking a model key out of a deployment: when it may be done, how, and deleting what is left of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from stream_calib.alerts.outbox import close_in
from stream_calib.config import Config
from stream_calib.config_identity import configured_keys, semantic_hash
from stream_calib.errors import ConfigurationError, StateError, StateUnavailableError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import RedisClient
from stream_calib.transport.port import Log, TopicPartition
from stream_calib.windows.input_partitions import input_key, input_sides
from stream_calib.windows.model_registry import Registered
from stream_calib.windows.panes import ENDED_CLOCK_MS
from stream_calib.windows.redis_removal import delete_state
from stream_calib.windows.shard_store import Mark, Progress
from workers.cli_models import known_keys
from workers.deployment import member_name, open_deployment_store, open_registry, state_of
from workers.role import wall_clock_ms
from workers.state_at_rest import LEASES, WORKERS
from workers.time_text import age

_LOG = logging.getLogger(__name__)

QUIET_MS = 86_400_000
"""A key that had a score within so much of the deployment's newest event time is in use."""
_SERVED_WITHIN_MS = 10_000
_LET_GO_WITHIN_MS = 90_000
_SILENT_MS = 3_000
_LOOK_EVERY_S = 0.1
_LEASE_MS = 5_000


class KeyUse(NamedTuple):
    """When the deployment last had to do with a model key."""

    key: ModelKey
    constant: bool
    """It is named in the configuration."""
    retired_ms: int | None
    """Wall time; None where it was not, or is back."""
    state_deleted: bool
    generation: str | None
    """Semantic hash that its state was made under; None: it has none."""
    snapshot: str | None
    """What is served."""
    newest_score_ms: int | None
    """End of the newest pane with a score; None where there is none, or its panes are of other settings."""
    quiet_ms: int | None
    """Event time that has passed since then on the deployment's inputs."""
    served_by: list[str]
    """Processes that have served it lately."""

    def in_use(self) -> str | None:
        """Why it must not be retired now, None where it may be."""
        if self.constant:
            return "it is named in the configuration: take it out there, and start the roles again"
        if self.served_by:
            return f"{', '.join(self.served_by)} has served it within the hour"
        if self.quiet_ms is not None and self.quiet_ms < QUIET_MS:
            return f"its newest score is {age(max(0, self.quiet_ms))} old by the times of the events, less than a day"
        return None


class Retirements:
    """Over one connection. Raises StateUnavailableError when the state is away."""

    def __init__(self, client: RedisClient, config: Config) -> None:
        self._client, self._config = client, config
        self._registry = open_registry(client, config)
        self._constants = configured_keys(config)

    def uses(self) -> list[KeyUse]:
        """Of all model keys in order of registration, then of those that were retired."""
        registered = self._registry.look()
        known = known_keys(self._client, self._config)
        progress = {key: state_of(self._client, self._config, key).shards.progress() for key in known}
        clocks = [clock for found in progress.values() for clock in _score_clocks(found)]
        newest_ms = max(clocks, default=None)
        return [
            *(self._use(key, registered, progress[key], newest_ms) for key in known),
            *(self._use(key, registered, [], newest_ms) for key in registered.retired if registered.gone(key)),
        ]

    def use(self, key: ModelKey) -> KeyUse:
        """Raises ConfigurationError where the deployment has no such key."""
        uses = self.uses()
        for use in uses:
            if use.key == key:
                return use
        there = ", ".join(str(use.key) for use in uses) or "none"
        raise ConfigurationError(f"there is no model key {key}; there are: {there}")

    def retire(self, key: ModelKey, log: Log) -> None:
        """Takes it out, where the log ends now, and closes its alerts. Raises ConfigurationError where it is in
        use."""
        use = self.use(key)
        if (why := use.in_use()) is not None:
            raise ConfigurationError(f"{key} cannot be retired: {why}")
        marks, begins = dict[str, Mark](), dict[str, int]()
        for topic, side in input_sides(self._config).items():
            for number in range(log.partitions(topic)):
                partition = TopicPartition(topic, number)
                name = input_key(log, side, partition)
                marks[name] = Mark(log.end_offset(partition), None)
                if side == "s":
                    begins[name] = log.offset_at(partition, 0)
        self._registry.retire(key, marks, wall_clock_ms())
        self._registry.forget_retired(begins)
        self._close_alerts(key)

    def _close_alerts(self, key: ModelKey) -> None:
        """By the deployment's outbox: within a second nobody reads that of the key any more."""
        store = open_deployment_store(self._client, self._config)
        try:
            close_in(store, state_of(self._client, self._config, key).store, f"{key} is retired")
        except StateUnavailableError:
            raise
        except StateError as error:  # what cannot be read is what people retire, and must not keep them from it
            _LOG.warning("open alerts of %s are not closed; end them where people were told of them: %s", key, error)

    def delete_state(self, key: ModelKey, told: Callable[[str], None] = lambda what: None) -> int:
        """Deletes all that a retired key has; how many keys of the server. `told`: hears what is waited for.

        Raises StateError where a process still works on it after a minute and a half, or it has come back meanwhile.
        """
        told(f"waiting until the roles have let {key} go")
        self._wait_until_let_go(key)
        deleted = delete_state(self._client, key, lambda: self._check_gone(key))
        self._registry.note_state_deleted(key)
        return deleted

    def _use(self, key: ModelKey, registered: Registered, progress: list[Progress], newest_ms: int | None) -> KeyUse:
        state = state_of(self._client, self._config, key)
        fields = state.store.read(("generation", "current"))
        retirement = registered.retired[key] if registered.gone(key) else None
        panes = [found.last_pane for found in progress if found.last_pane is not None]
        ours = fields["generation"] == semantic_hash(self._config)
        last_ms = (max(panes) + 1) * self._config.windows.pane_ms if panes and ours else None
        now_ms = wall_clock_ms()
        serves = [
            f"{status.role} {status.member}"
            for status in state.board.all(now_ms)
            if status.role not in WORKERS and now_ms - status.time_ms < _SERVED_WITHIN_MS
        ]
        return KeyUse(
            key,
            key in self._constants,
            None if retirement is None else retirement.time_ms,
            retirement is not None and retirement.state_deleted,
            fields["generation"],
            fields["current"] or None,
            last_ms,
            None if last_ms is None or newest_ms is None else newest_ms - last_ms,
            serves,
        )

    def _check_gone(self, key: ModelKey) -> None:
        if not self._registry.look().gone(key):
            raise StateError(f"{key} has come back while its state was being deleted: there is new traffic of it")

    def _wait_until_let_go(self, key: ModelKey) -> None:
        """Nobody has said anything of the key for a while, and its leases are free. (Statuses are compared with each
        other: the clocks of machines differ.)"""
        state = state_of(self._client, self._config, key)
        silent_s = (_SILENT_MS + self._config.serving.snapshot_poll_ms) / 1_000
        deadline = time.monotonic() + _LET_GO_WITHIN_MS / 1_000 + silent_s
        said, since = None, time.monotonic()
        me = member_name()
        while True:
            self._check_gone(key)
            now_said = [(s.role, s.member, s.time_ms) for s in state.board.all(wall_clock_ms())]
            if now_said != said:
                said, since = now_said, time.monotonic()
            held = [name for name in LEASES if state.store.acquire_lease(name, me, _LEASE_MS) is None]
            if not held and time.monotonic() - since >= silent_s:
                return
            if time.monotonic() > deadline:
                who = f"the lease of {held[0]} is held" if held else f"last of all {max(said, key=lambda s: s[2])[:2]}"
                raise StateError(f"{key} is retired, but still worked on ({who}); delete its state later")
            time.sleep(_LOOK_EVERY_S)


def _score_clocks(progress: list[Progress]) -> list[int]:
    """Of partitions that have had an event, and have not ended."""
    clocks = [mark.clock_ms for found in progress for i, mark in found.marks.items() if i.startswith("s:")]
    return [clock for clock in clocks if clock is not None and clock < ENDED_CLOCK_MS]
