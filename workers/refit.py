"""refit: answers the requests of the decision log, under a lease with a fencing token."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

from stream_calib import metrics
from stream_calib.config import Config
from stream_calib.errors import StateUnavailableError
from stream_calib.refit.worker import Refitter
from stream_calib.snapshot.changes import REFIT_LEASE
from workers.deployment import State, member_name, open_state
from workers.role import Role, wall_clock_ms
from workers.status_board import MemberStatus

_LOG = logging.getLogger(__name__)

_LEASE_MS = 30_000
_RENEW_AFTER_MS = 1_000
_RENEW_AT_WORK_S = _LEASE_MS / 3_000
_STATUS_EVERY_MS = 1_000


class Refit(Role):
    """One process at a time works; what another one publishes meanwhile is refused by its token."""

    name = "refit"

    def __init__(self, config: Config, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._config = config
        self._clock_ms = clock_ms
        self._member = member_name()
        self._opened = ExitStack()
        self._answered = self._reported_at = self._renewed_at = 0
        self._token: str | None = None

    def open(self) -> None:
        self.close()
        self._state = state = self._opened.enter_context(closing(open_state(self._config)))
        self._opened.callback(lambda: state.board.drop(self.name, self._member))
        self._opened.callback(lambda: state.store.release_lease(REFIT_LEASE, self._member))
        self._token = None
        self._refitter = Refitter(state.store, state.snapshots, state.model_key, self._config)

    def step(self) -> bool:
        now = self._clock_ms()
        if self._token is None or now - self._renewed_at >= _RENEW_AFTER_MS:
            self._token, self._renewed_at = self._state.store.acquire_lease(REFIT_LEASE, self._member, _LEASE_MS), now
        report = None
        if self._token and self._state.snapshots.log().open_request is not None:
            with self._lease_kept(self._state):
                report = self._refitter.run_once(self._token)
        if report is not None:
            self._answered += 1
            key = str(self._state.model_key)
            metrics.REFITS.labels(key, report.kind, report.outcome).inc()
            for code in report.refused_for:
                metrics.GATE_REFUSALS.labels(key, code).inc()
            _LOG.info("refit %s (%s): %s, %s", report.kind, report.reason, report.outcome, report.detail)
        if report is not None or now - self._reported_at >= _STATUS_EVERY_MS:
            self._reported_at = now
            facts = {"answered": self._answered, "active": self._token is not None}
            self._state.board.put(MemberStatus(self.name, self._member, now, facts))
        return report is not None

    @contextmanager
    def _lease_kept(self, state: State) -> Iterator[None]:
        """Renews the lease while a refit is at work: else two workers whose refits take longer than the lease would
        take it from each other for ever, and none of them publish."""
        done = threading.Event()

        def renew() -> None:
            while not done.wait(_RENEW_AT_WORK_S):
                try:
                    state.store.acquire_lease(REFIT_LEASE, self._member, _LEASE_MS)
                except StateUnavailableError as error:
                    _LOG.warning("the refit lease was not renewed: %s", error)

        thread = threading.Thread(target=renew, name="refit lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def close(self) -> None:
        self._opened.close()
