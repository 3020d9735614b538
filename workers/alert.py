"""alert: brings alert events from the outboxes of all model keys, and from the deployment's own, to their receivers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing

from stream_calib import metrics
from stream_calib.alerts.model import Alert
from stream_calib.alerts.outbox import drain, open_alerts, waiting
from stream_calib.config import Config
from stream_calib.events.contracts import ModelKey
from stream_calib.transport.port import Log
from stream_calib.windows.model_registry import deployment_scope
from stream_calib.windows.state_store import StateStore
from workers.deployment import connect_state, member_name, open_board, open_deployment_store, open_log
from workers.model_states import EachModel, ModelStates
from workers.role import Role, wall_clock_ms
from workers.status_board import MemberStatus, StatusBoard

_LOG = logging.getLogger(__name__)

LEASE = "alert"
_LEASE_MS = 5_000
_STATUS_EVERY_MS = 1_000
_LEVEL = {"info": logging.INFO, "warning": logging.WARNING, "critical": logging.ERROR}


class OutboxDelivery:
    """One outbox: at least once, in order, one process at a time by lease (which only saves repeats)."""

    def __init__(self, key: ModelKey, store: StateStore, board: StatusBoard, log: Log, topic: str, member: str) -> None:
        """`topic`: where the alerts go."""
        self._key, self._store, self._board, self._log, self._topic = key, store, board, log, topic
        self._member = member
        self._delivered = 0
        self._reported_at = 0
        self._open: dict[str, str] | None = None
        """Alerts that are open: deduplication key -> kind. None without the lease."""
        self._told: set[str] = set()
        """Kinds for which there is a metric."""

    def deliver(self, now_ms: int) -> bool:
        """Delivers what is waiting, where the lease is this process's."""
        if not self._store.acquire_lease(LEASE, self._member, _LEASE_MS):
            self._withdraw()
            return False
        if self._open is None:
            self._open = {dedup_key: alert.kind for dedup_key, alert in open_alerts(self._store).items()}
            self._measure(self._open, self._open.values())
        alerts = drain(self._store, self._log.produce, self._topic)
        for alert in alerts:
            self._tell(alert)
        self._delivered += len(alerts)
        if alerts or now_ms - self._reported_at >= _STATUS_EVERY_MS:
            self._reported_at = now_ms
            metrics.OUTBOX_LENGTH.labels(str(self._key)).set(waiting(self._store))
            self._board.put(MemberStatus("alert", self._member, now_ms, {"delivered": self._delivered}))
        return bool(alerts)

    def _tell(self, alert: Alert) -> None:
        _LOG.log(
            _LEVEL[alert.severity],
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

    def _withdraw(self) -> None:
        """What only the holder of the lease knows."""
        self._open = None
        for kind in self._told:
            metrics.ALERTS_OPEN.remove(str(self._key), kind)
        metrics.OUTBOX_LENGTH.remove(str(self._key))
        self._told.clear()

    def release(self) -> None:
        """Gives up the lease and the status."""
        self._withdraw()
        self._board.drop("alert", self._member)
        self._store.release_lease(LEASE, self._member)


class AlertDelivery(Role):
    """See OutboxDelivery."""

    name = "alert"

    def __init__(self, config: Config, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._config = config
        self._clock_ms = clock_ms
        self._member = member_name()
        self._opened = ExitStack()

    def open(self) -> None:
        self.close()
        config = self._config
        client = self._opened.enter_context(closing(connect_state(config)))
        self._log = self._opened.enter_context(open_log(config))
        self._states = ModelStates(client, config, self._clock_ms)
        self._each = EachModel[OutboxDelivery](self.name, self._clock_ms)
        self._outboxes: dict[ModelKey, OutboxDelivery] = {}
        self._opened.callback(lambda: self._leave(list(self._outboxes)))
        self._scope = deployment_scope(config.log.group_prefix)
        self._add(self._scope, open_deployment_store(client, config), open_board(client, config))

    def _add(self, key: ModelKey, store: StateStore, board: StatusBoard) -> None:
        if key not in self._outboxes:
            outbox = OutboxDelivery(key, store, board, self._log, self._config.topics.alerts, self._member)
            self._outboxes[key] = outbox

    def _leave(self, keys: list[ModelKey]) -> None:
        for key in keys:
            self._outboxes[key].release()
            del self._outboxes[key]

    def step(self) -> bool:
        states = self._states.all()
        for state in states:
            self._add(state.model_key, state.store, state.board)
        kept = {self._scope, *(state.model_key for state in states)}
        self._leave([key for key in self._outboxes if key not in kept])
        now = self._clock_ms()
        return self._each.do(self._outboxes.items(), lambda outbox: outbox.deliver(now))

    def close(self) -> None:
        self._opened.close()
