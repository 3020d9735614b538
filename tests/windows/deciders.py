"""A decider that only keeps a chain over everything that it was shown, so that one look at the end tells all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from stream_calib.snapshot.decision_log import DecisionLog, Request
from stream_calib.windows.cells import MaturedCells, ScoredCells

WINDOW_PANES = 3
REQUEST_EVERY, ALERT_EVERY = 5, 3


@dataclass(frozen=True)
class Decided:
    detector: str
    decisions: tuple[bytes, ...]
    outbox: tuple[bytes, ...]
    open_request: str


class ChainDecider:
    """PaneDecider whose detector state is a hash over all panes decided, their cells and the window of scored cells."""

    def __init__(self, first_pane: int, horizon_panes: int, *, requests: bool = True) -> None:
        self.first_pane = first_pane
        self._horizon_panes = horizon_panes
        self._requests = requests
        self._window: dict[int, bytes] = {}

    @property
    def horizon_panes(self) -> int:
        return self._horizon_panes

    def missing(self, pane: int) -> range:
        last = pane + self._horizon_panes
        first = max(last - WINDOW_PANES + 1, self.first_pane)
        newest = max(self._window, default=None)
        if newest is not None and min(self._window) <= first and first - 1 <= newest <= last:
            return range(newest + 1, last + 1)
        self._window.clear()
        return range(first, last + 1)

    def push(self, pane: int, cells: ScoredCells) -> None:
        assert not self._window or pane == max(self._window) + 1
        self._window[pane] = cells.pack()
        self._window.pop(pane - WINDOW_PANES, None)

    def decide(
        self, pane: int, detector: str | None, log: DecisionLog, matured: MaturedCells, cells_sha256: str
    ) -> Decided:
        assert max(self._window) == pane + self._horizon_panes
        scored = b"".join(self._window[p] for p in sorted(self._window))
        entries: tuple[bytes, ...] = ()
        request_id = ""
        if self._requests and pane % REQUEST_EVERY == 0:
            request_id = f"request-{pane}"
            entries = (request(pane, self.first_pane, cells_sha256, log).encode(),)
        alerts = (b"alert-%d" % pane,) if pane % ALERT_EVERY == 0 else ()
        return Decided(link(detector, pane, scored, matured.pack(), cells_sha256), entries, alerts, request_id)

    def expired(self, request: Request, pane: int) -> tuple[bytes, ...]:
        return ()


def link(detector: str | None, pane: int, scored: bytes, matured: bytes, cells_sha256: str) -> str:
    return sha256(f"{detector}|{pane}|{cells_sha256}|".encode() + scored + matured).hexdigest()


def request(pane: int, first_pane: int, cells_sha256: str, log: DecisionLog) -> Request:
    return Request(
        pane=pane,
        id=f"request-{pane}",
        kind="structure",
        reason="age",
        first_pane=first_pane,
        last_pane=pane,
        cells_sha256=cells_sha256,
        parent=log.current_at(pane),
        roles={"fit": [0]},
        config_hash="c",
    )


def expected_detector(
    first: int,
    last: int,
    horizon_panes: int,
    scored: Callable[[int], bytes],
    matured: Callable[[int], bytes],
    chain: Callable[[int], str],
) -> str | None:
    """What ChainDecider's detector must be once the panes are decided, from the committed blobs."""
    detector = None
    for pane in range(first, last + 1):
        newest = pane + horizon_panes
        window = range(max(newest - WINDOW_PANES + 1, first), newest + 1)
        detector = link(detector, pane, b"".join(map(scored, window)), matured(pane), chain(pane))
    return detector
