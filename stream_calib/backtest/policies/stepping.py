"""The lock-step over a history of cells: each pane is decided in order, and a request is answered at once.

Closer and refit are those of the service (Decider, Refitter, SnapshotStore) over a state in memory. When a pane was
decided is no part of it: a live run decides by the same cells and the same log, whenever its labels come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.policies.encoded_parts import EncodedParts
from stream_calib.backtest.policies.remembering_store import RememberingStore
from stream_calib.backtest.policies.shared_decider import SharedDecider
from stream_calib.backtest.policies.shared_fits import SharedFits
from stream_calib.backtest.policies.shared_fits_group import SharedSource
from stream_calib.backtest.policies.shared_fits_panes import SharedPanes
from stream_calib.config import Config
from stream_calib.drift.psi_alert import PsiFacts
from stream_calib.errors import HistoryError
from stream_calib.refit.decider import Decider
from stream_calib.refit.worker import Refitter
from stream_calib.snapshot.changes import REFIT_LEASE
from stream_calib.snapshot.decision_log import DecisionLog
from stream_calib.snapshot.history import is_publication
from stream_calib.snapshot.log_reader import LogReader
from stream_calib.snapshot.report import RefitReport
from stream_calib.windows.decision_commits import decided_commit

_OWNER, _FOR_EVER_MS = "backtest", 10**15


@dataclass(frozen=True, slots=True)
class Publication:
    """A move of the snapshot pointer."""

    version: str
    decided: int
    """The last pane that was decided before it."""
    serves_from: int
    """The first pane whose scores it serves."""


class Stepper:
    """Steps panes from the history's first one on, up to `last_pane`."""

    def __init__(
        self,
        history: CellHistory,
        config: Config,
        *,
        before_pane: Callable[[int], None] = lambda pane: None,
        shared: SharedFits | None = None,
    ) -> None:
        """`before_pane`: called once with each pane before it is decided, and with the pane behind the last one. It may
        append to the decision log what took effect there, and call `answer` where the open request has its place among
        that; a request that it leaves open is answered when it returns. `shared`: what others have made of the same
        history, for those who append nothing; the field `detector` is in the state once the last pane is stepped."""
        self.history, self.config = history, config
        self._pane_ms = config.windows.pane_ms
        if self._pane_ms != history.pane_ms:
            raise HistoryError(
                f"the history has panes of {history.pane_ms} ms and the configuration of {self._pane_ms} ms"
                " (windows.pane): cells cannot be cut anew, replay the events"
            )
        self.state = history.state()
        parts = EncodedParts() if shared is None else shared.parts
        self.store = RememberingStore(
            self.state, history.key, history.generation, self._pane_ms, self._event_time, parts
        )
        token = self.state.acquire_lease(REFIT_LEASE, _OWNER, _FOR_EVER_MS)
        assert token is not None  # the state is new, nobody else holds it
        self._token = token
        self._panes = SharedPanes(history, keeps=False) if shared is None else shared.panes
        self._shared = shared is not None
        if shared is None:
            self._refitter = Refitter(self.state, self.store, history.key, config)
            reads = self.state.signatures, self.store.reference, self.store.load
            self.decider = Decider(history.key, history.generation, history.first_pane, config, *reads)
        else:
            group, load = shared.group(config), self.store.load
            self._refitter = Refitter(self.state, self.store, history.key, config, SharedSource(group, config))
            self.decider = SharedDecider(group, config, load)
        self.reader = LogReader(self.state)
        self.reports: list[RefitReport] = []
        """Of every request, in order."""
        self.last_pane = min(history.last_matured, history.last_pane - self.decider.horizon_panes)
        """The last one that can be decided: its labels are final, and the panes that PSI looks at are closed."""
        self._before_pane = before_pane
        self._next = history.first_pane

    @property
    def psi_facts(self) -> PsiFacts | None:
        """What PSI was made of at the last step; None: no snapshot was current there."""
        return self.decider.psi_facts

    def step(self, pane: int) -> RefitReport | None:
        """Decides the next pane and answers its request; the report, where there was one.

        Raises ValueError out of order, HistoryError behind `last_pane`.
        """
        if pane != self._next:
            raise ValueError(f"pane {self._next} is to be decided next, not {pane}")
        if pane > self.last_pane:
            raise HistoryError(f"pane {pane} cannot be decided: the history ends with what decides {self.last_pane}")
        if pane == self.history.first_pane:
            self._before_pane(pane)
        self._decide(pane)
        self._next = pane + 1
        done = len(self.reports)
        self._before_pane(pane + 1)
        self.answer()
        return self.reports[-1] if len(self.reports) > done else None

    def answer(self) -> RefitReport | None:
        """Answers the open request, if there is one; its report."""
        if not self.state.read(["open_request"])["open_request"]:
            return None
        report = self._refitter.run_once(self._token)
        if report is not None:
            self.reports.append(report)
        return report

    def log(self) -> DecisionLog:
        """The decision log so far."""
        return self.reader.read()[1]

    def publications(self, label_delay_panes: int = 0) -> list[Publication]:
        """Every move of the snapshot pointer, in order; with labels that come so many panes later than the history
        says."""
        found = []
        for move in self.store.history():
            if is_publication(move):
                decided = int(move["pane"]) - 1
                late = label_delay_panes + self.history.label_delay(decided)
                found.append(Publication(str(move["version"]), decided, serves_from(decided, self.config) + late))
        return found

    def _decide(self, pane: int) -> None:
        fields, log = self.reader.read(["decided", "detector"])
        for missing in self.decider.missing(pane):
            self.decider.push(missing, self._panes.scored(missing))
        cells, chain_hash = self._panes.matured(pane), self._panes.chain(pane)
        made = self.decider.decide(pane, fields["detector"], log, cells, chain_hash)
        change = decided_commit(
            {"decided": fields["decided"], "tip": fields["tip"]},
            log.tip,
            log.length,
            decided=pane,
            detector=self.decider.detector if self._shared and pane == self.last_pane else made.detector,
            open_request=made.open_request,
            decisions=made.decisions,
            outbox=made.outbox,
        )
        if not self.state.commit(change):
            raise HistoryError(f"the decision log was changed while pane {pane} was decided")

    def _event_time(self) -> int:
        """The end of the last decided pane: no clock runs."""
        return self._next * self._pane_ms


def serves_from(decided: int, config: Config) -> int:
    """The first pane that begins when what was decided at a pane can be known: scores up to horizon and lateness behind
    its end must have been closed, and labels too."""
    windows = config.windows
    behind_ms = max(
        windows.horizon_ms + windows.label_lateness_ms,
        windows.horizon_ms // windows.pane_ms * windows.pane_ms + windows.score_lateness_ms,
    )
    return decided + 1 + -(-behind_ms // windows.pane_ms)
