"""The port between the closer and what is decided: the step of a pane, and what may be dropped after it.

Windows only count. The closer knows the two by these protocols, so that refit builds on windows and not the other way
round.
"""

from __future__ import annotations

from typing import Protocol

from stream_calib.snapshot.decision_log import DecisionLog, Request
from stream_calib.windows.cells import MaturedCells, ScoredCells


class PaneDecision(Protocol):
    """What is committed for a decided pane (refit/decider.py, Decision)."""

    @property
    def detector(self) -> str: ...
    @property
    def decisions(self) -> tuple[bytes, ...]: ...
    @property
    def outbox(self) -> tuple[bytes, ...]: ...
    @property
    def open_request(self) -> str: ...


class PaneDecider(Protocol):
    """The step of a pane, as refit/decider.py implements it. Pure but for a window of scored cells in memory."""

    @property
    def horizon_panes(self) -> int: ...
    def missing(self, pane: int) -> range:
        """Panes whose scored cells it has to be given by `push`, in this order, before the pane is decided."""

    def push(self, pane: int, cells: ScoredCells) -> None: ...
    def decide(
        self, pane: int, detector: str | None, log: DecisionLog, matured: MaturedCells, cells_sha256: str
    ) -> PaneDecision: ...

    def expired(self, request: Request, pane: int) -> tuple[bytes, ...]:
        """Entries of the outbox that belong to the expiry, which comes before `pane` is decided."""


class Retention(Protocol):
    """Drops what is done with, as refit/retention.py implements it."""

    def advance(self, removed: int | None) -> bool: ...
