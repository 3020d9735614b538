"""alert: brings alert events from the outboxes of all model keys, and from the deployment's own, to their receivers.

One process of the deployment does, by lease; the others stand by. This thread reads outboxes and moves positions; the
topic and each hook are called by threads of their own.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any, get_args

from stream_calib import metrics
from stream_calib.alerts.delivery import HookDelivery, fields_of, take_over
from stream_calib.alerts.delivery_topic import TopicDelivery
from stream_calib.alerts.model import Alert
from stream_calib.alerts.outbox import SENT, confirm, drop_read, open_alerts, unsent, waiting
from stream_calib.alerts.refusal import Record
from stream_calib.alerts.routing import Routing
from stream_calib.alerts.severity import LOG_LEVEL
from stream_calib.alerts.silence import Silences
from stream_calib.config import Config
from stream_calib.events.contracts import ModelKey
from stream_calib.windows.model_registry import deployment_scope
from stream_calib.windows.state_store import StateStore
from workers.deployment import connect_state, hooks_of, member_name, open_board, open_deployment_store, open_log
from workers.model_states import EachModel, ModelStates
from workers.role import Role, wall_clock_ms
from workers.status_board import MemberStatus, StatusBoard

_LOG = logging.getLogger(__name__)

LEASE = "alert"
_LEASE_MS = 5_000
_STATUS_EVERY_MS = 1_000
_WAIT_FOR_RESULTS_S = 0.05
_END_WITHIN_S = 3.0


class OutboxDelivery:
    """One outbox: what is new in it goes to the topic, and into the ledgers of the hooks."""

    def __init__(
        self,
        key: ModelKey,
        store: StateStore,
        board: StatusBoard,
        topic: TopicDelivery,
        hooks: Sequence[HookDelivery],
        member: str,
        facts: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        """`facts`: more for the status board."""
        self._key, self._store, self._board = key, store, board
        self._topic, self._hooks, self._member, self._facts = topic, hooks, member, facts
        self._fields = fields_of(hooks)
        self._delivered = 0
        self._reported_at = 0
        self._open: dict[str, str] | None = None
        """Alerts that are open, as the topic has them: deduplication key -> kind. None before the first look."""
        self._told: set[str] = set()
        """Kinds for which there is a metric."""

    def step(self, now_ms: int) -> bool:
        """Confirms what the topic has, and takes over what is new."""
        if self._open is None:
            self._open = {dedup_key: alert.kind for dedup_key, alert in open_alerts(self._store).items()}
            self._measure(self._open, self._open.values())
        confirmed = self.confirm()
        fields = self._store.read(self._fields)
        taken = take_over(self._hooks, self._key, self._store, fields, now_ms)
        if self._topic.takes(now_ms) and (found := unsent(self._store, fields[SENT])) is not None:
            self._topic.offer(self._key, found)
        if confirmed or taken:
            drop_read(self._store, (hook.positions()[self._key] for hook in self._hooks))
        if confirmed or not 0 <= now_ms - self._reported_at < _STATUS_EVERY_MS:
            self._reported_at = now_ms
            metrics.OUTBOX_LENGTH.labels(str(self._key)).set(waiting(self._store))
            facts = {"delivered": self._delivered, **self._facts()}
            self._board.put(MemberStatus("alert", self._member, now_ms, facts))
        return confirmed or taken

    def confirm(self) -> bool:
        """Puts on record what the topic has."""
        delivered = self._topic.delivered(self._key)
        if delivered is None:
            return False
        confirm(self._store, delivered)
        for alert in delivered.alerts:
            self._tell(alert)
        self._delivered += len(delivered.alerts)
        return True

    def _tell(self, alert: Alert) -> None:
        _LOG.log(
            LOG_LEVEL[alert.severity],
            "alert %s of %s, %s: %s",
            alert.kind,
            self._key,
            alert.state,
            alert.diagnosis,
            extra={"model": str(self._key), "alert": alert.kind},
        )
        metrics.ALERTS_DELIVERED.labels(str(self._key), alert.kind, alert.state).inc()
        assert self._open is not None
        if alert.state == "close":
            self._open.pop(alert.dedup_key, None)
        elif alert.state == "open":
            self._open[alert.dedup_key] = alert.kind
        self._measure(self._open, [alert.kind])

    def _measure(self, opened: Mapping[str, str], kinds: Iterable[str]) -> None:
        for kind in kinds:
            metrics.ALERTS_OPEN.labels(str(self._key), kind).set(kind in opened.values())
            self._told.add(kind)

    def leave(self) -> None:
        """The outbox is another process's now: what only the holder of the lease knows is withdrawn."""
        for kind in self._told:
            metrics.ALERTS_OPEN.remove(str(self._key), kind)
        metrics.OUTBOX_LENGTH.remove(str(self._key))
        self._topic.forget(self._key)
        for hook in self._hooks:
            hook.forget(self._key)
        self._board.drop("alert", self._member)


class AlertDelivery(Role):
    """See the module."""

    name = "alert"

    def __init__(self, config: Config, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._config = config
        self._clock_ms = clock_ms
        self._member = member_name()
        self._opened = ExitStack()
        for record in get_args(Record):
            metrics.ALERT_RECORDS_REFUSED.labels(record)  # there from the start, so that the first one is seen

    def open(self) -> None:
        self.close()
        config, alerts = self._config, self._config.alerts
        client = self._opened.enter_context(closing(connect_state(config)))
        self._store, self._board = open_deployment_store(client, config), open_board(client, config)
        self._silences = Silences(self._store)
        self._done, random_ = threading.Event(), random.Random()
        self._topic = TopicDelivery(lambda: open_log(config), config.topics.alerts, random_, self._done)
        routing, after_ms = Routing(alerts), alerts.give_up_after_ms
        self._hooks = [
            HookDelivery(hook, section, routing, after_ms, random_, self._done)
            for hook, section in zip(hooks_of(alerts), alerts.hooks, strict=True)
        ]
        self._states = ModelStates(client, config, self._clock_ms)
        self._each = EachModel[OutboxDelivery](self.name, self._clock_ms)
        self._outboxes: dict[ModelKey, OutboxDelivery] = {}
        self._scope = deployment_scope(config.log.group_prefix)
        self._opened.callback(self._end)

    def step(self) -> bool:
        now = self._clock_ms()
        if not self._store.acquire_lease(LEASE, self._member, _LEASE_MS):
            self._leave(list(self._outboxes))
            return False
        self._look_at_outboxes()
        self._topic.settle(now)
        worked = self._each.do(self._outboxes.items(), lambda outbox: outbox.step(now))
        self._topic.send()
        # Looked at behind the outboxes: what was silenced before it was raised is never told.
        silences = self._silences.at(now) if self._hooks else []
        for hook in self._hooks:
            worked |= hook.step(silences, now)
        is_busy = self._topic.is_busy or any(hook.is_busy for hook in self._hooks)
        if not worked and is_busy and self._done.wait(_WAIT_FOR_RESULTS_S):
            self._done.clear()
            worked = True
        return worked

    def _look_at_outboxes(self) -> None:
        states = self._states.all()
        self._add(self._scope, self._store, self._board)
        for state in states:
            self._add(state.model_key, state.store, state.board)
        kept = {self._scope, *(state.model_key for state in states)}
        self._leave([key for key in self._outboxes if key not in kept])

    def _add(self, key: ModelKey, store: StateStore, board: StatusBoard) -> None:
        if key not in self._outboxes:
            facts = self._facts if key == self._scope else dict
            self._outboxes[key] = OutboxDelivery(key, store, board, self._topic, self._hooks, self._member, facts)

    def _facts(self) -> dict[str, Any]:
        return {"hooks": {hook.name: hook.facts() for hook in self._hooks}} if self._hooks else {}

    def _leave(self, keys: list[ModelKey]) -> None:
        for key in keys:
            self._outboxes.pop(key).leave()

    def ready(self) -> str | None:
        return None if self._topic.failure is None else f"waits: {self._topic.failure}"

    def _end(self) -> None:
        """What is on its way is waited for, for a while: told and not on record, it would be told again."""
        give_up = time.monotonic() + _END_WITHIN_S
        try:
            now = self._clock_ms()
            self._topic.settle(now, max(0.0, give_up - time.monotonic()))
            for outbox in self._outboxes.values():
                outbox.confirm()
            for hook in self._hooks:
                hook.settle(now, max(0.0, give_up - time.monotonic()))
            self._leave(list(self._outboxes))
            self._store.release_lease(LEASE, self._member)
        finally:
            self._topic.close()
            for hook in self._hooks:
                hook.close()

    def close(self) -> None:
        self._opened.close()
