"""refit: answers the requests of the decision logs of all model keys, for each under a lease with a fencing token."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import ClassVar

from stream_calib import metrics
from stream_calib.config import Config
from stream_calib.errors import StateUnavailableError
from stream_calib.events.contracts import ModelKey
from stream_calib.garbage_collection import give_back_freed_memory
from stream_calib.refit.worker import Refitter
from stream_calib.snapshot.changes import REFIT_LEASE
from stream_calib.snapshot.report import RefitReport
from stream_calib.snapshot.store import SnapshotStore
from stream_calib.windows.state_store import StateStore
from workers.deployment import State, connect_state, member_name
from workers.model_states import EachModel, ModelStates
from workers.role import Role, wall_clock_ms
from workers.status_board import MemberStatus

_LOG = logging.getLogger(__name__)

_LEASE_MS = 30_000
_RENEW_AFTER_MS = 1_000
_RENEW_AT_WORK_S = _LEASE_MS / 3_000
_STATUS_EVERY_MS = 1_000


class ModelRefit:
    """The refits of one model key."""

    def __init__(
        self, key: ModelKey, store: StateStore, snapshots: SnapshotStore, refitter: Refitter, member: str
    ) -> None:
        self.key, self._store, self._snapshots, self._refitter, self._member = key, store, snapshots, refitter, member
        self._token: str | None = None
        self._renewed_at = self._looked_at = 0
        self.answered = 0

    @property
    def active(self) -> bool:
        """Whether this process has the lease, as far as it knows."""
        return self._token is not None

    def answer(self, now_ms: int) -> RefitReport | None:
        """Answers the open request, if there is one and the lease is this process's."""
        if self._token is None or now_ms - self._renewed_at >= _RENEW_AFTER_MS:
            self._token, self._renewed_at = self._store.acquire_lease(REFIT_LEASE, self._member, _LEASE_MS), now_ms
        if self._token is None:
            return None
        if self._snapshots.log().open_request is None:
            if self._looked_at != self._renewed_at:
                self._looked_at = self._renewed_at
                with self._lease_kept():
                    worked = self._refitter.keep_up()
                if worked:
                    give_back_freed_memory()
            return None
        began_s = time.monotonic()
        with self._lease_kept():
            report = self._refitter.run_once(self._token)
        # A fit takes for a moment as much again as what is kept, and the next one may be a day away.
        give_back_freed_memory()
        if report is not None:
            self.answered += 1
            self._tell(report, time.monotonic() - began_s)
        return report

    def release(self) -> None:
        """Gives the lease up."""
        self._token = None
        self._store.release_lease(REFIT_LEASE, self._member)

    def _tell(self, report: RefitReport, seconds: float) -> None:
        model = str(self.key)
        metrics.REFITS.labels(model, report.kind, report.outcome).inc()
        metrics.REFIT_SECONDS.labels(model, report.kind).observe(seconds)
        for code in report.refused_for:
            metrics.GATE_REFUSALS.labels(model, code).inc()
        _LOG.info(
            "refit %s of %s (%s): %s, %s",
            report.kind,
            model,
            report.reason,
            report.outcome,
            report.detail,
            extra={"model": model, "version": report.version, "outcome": report.outcome},
        )

    @contextmanager
    def _lease_kept(self) -> Iterator[None]:
        """Renews the lease while a refit is at work: else two workers whose refits take longer than the lease would
        take it from each other for ever, and none of them publish."""
        done = threading.Event()

        def renew() -> None:
            while not done.wait(_RENEW_AT_WORK_S):
                try:
                    self._store.acquire_lease(REFIT_LEASE, self._member, _LEASE_MS)
                except StateUnavailableError as error:
                    _LOG.warning("the refit lease of %s was not renewed: %s", self.key, error)

        thread = threading.Thread(target=renew, name="refit lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


class Refit(Role):
    """For each model key one process at a time works; what another one publishes meanwhile is refused by its token."""

    name = "refit"
    longest_step_s: ClassVar[float] = 3_600.0  # the fit of a large deployment is one step

    def __init__(self, config: Config, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._config = config
        self._clock_ms = clock_ms
        self._member = member_name()
        self._opened = ExitStack()

    def open(self) -> None:
        self.close()
        client = self._opened.enter_context(closing(connect_state(self._config)))
        self._states = ModelStates(client, self._config, self._clock_ms)
        self._each = EachModel[tuple[State, ModelRefit]](self.name, self._clock_ms)
        self._refits: dict[ModelKey, tuple[State, ModelRefit]] = {}
        self._opened.callback(lambda: self._leave(list(self._refits)))
        self._reported_at: dict[ModelKey, int] = {}

    def step(self) -> bool:
        states = {state.model_key: state for state in self._states.all()}
        self._leave([key for key in self._refits if key not in states])
        return self._each.do([(key, self._refit_of(state)) for key, state in states.items()], self._work)

    def _refit_of(self, state: State) -> tuple[State, ModelRefit]:
        key = state.model_key
        if key not in self._refits:
            refitter = Refitter(state.store, state.snapshots, key, self._config)
            self._refits[key] = state, ModelRefit(key, state.store, state.snapshots, refitter, self._member)
        return self._refits[key]

    def _leave(self, keys: list[ModelKey]) -> None:
        for key in keys:
            state, refit = self._refits[key]
            refit.release()
            state.board.drop(self.name, self._member)
            del self._refits[key]

    def _work(self, work: tuple[State, ModelRefit]) -> bool:
        state, refit = work
        now = self._clock_ms()
        report = refit.answer(now)
        if report is not None or now - self._reported_at.get(refit.key, 0) >= _STATUS_EVERY_MS:
            self._reported_at[refit.key] = now
            facts = {"answered": refit.answered, "active": refit.active}
            state.board.put(MemberStatus(self.name, self._member, now, facts))
        return report is not None

    def close(self) -> None:
        self._opened.close()
