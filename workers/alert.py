"""alert: delivers the durable outbox to the alerts topic."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack, closing

from stream_calib import metrics
from stream_calib.alerts.outbox import drain
from stream_calib.config import Config
from workers.deployment import member_name, open_log, open_state
from workers.role import Role, wall_clock_ms
from workers.status_board import MemberStatus

_LOG = logging.getLogger(__name__)

LEASE = "alert"
_LEASE_MS = 5_000
_STATUS_EVERY_MS = 1_000
_LEVEL = {"info": logging.INFO, "warning": logging.WARNING, "critical": logging.ERROR}


class AlertDelivery(Role):
    """At least once, in order, one process at a time by lease (which only saves repeats)."""

    name = "alert"

    def __init__(self, config: Config, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._config = config
        self._clock_ms = clock_ms
        self._member = member_name()
        self._opened = ExitStack()
        self._delivered = self._reported_at = 0

    def open(self) -> None:
        self.close()
        self._state = state = self._opened.enter_context(closing(open_state(self._config)))
        self._log = self._opened.enter_context(open_log(self._config))
        self._opened.callback(lambda: state.board.drop(self.name, self._member))
        self._opened.callback(lambda: state.store.release_lease(LEASE, self._member))

    def step(self) -> bool:
        now = self._clock_ms()
        if not self._state.store.acquire_lease(LEASE, self._member, _LEASE_MS):
            return False
        alerts = drain(self._state.store, self._log.produce, self._config.topics.alerts)
        for alert in alerts:
            _LOG.log(_LEVEL[alert.severity], "alert %s %s: %s", alert.kind, alert.state, alert.diagnosis)
            model = f"{alert.model}/{alert.model_version}"
            metrics.ALERTS_DELIVERED.labels(model, alert.kind, alert.state).inc()
        self._delivered += len(alerts)
        if alerts or now - self._reported_at >= _STATUS_EVERY_MS:
            self._reported_at = now
            self._state.board.put(MemberStatus(self.name, self._member, now, {"delivered": self._delivered}))
        return bool(alerts)

    def close(self) -> None:
        self._opened.close()
