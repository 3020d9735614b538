"""The closer: advances the three cursors closed, matured, decided of one model key, each by compare-and-set.

Any number of closers may run at once, be paused, and go on: what they read is a pure function of the logs, and a commit
that comes second finds its expectation gone. The lease only saves work.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from stream_calib.errors import StateError
from stream_calib.snapshot.decision_log import DecisionLog, Expired, Request, chain
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.pane_record import PaneNames, PaneRecord, chained, decode_record
from stream_calib.windows.panes import ENDED_CLOCK_MS
from stream_calib.windows.shard_store import Inputs, Progress, ReadGuard, ShardStore
from stream_calib.windows.state_store import Commit, StateStore
from stream_calib.windows.walk import read_matured, read_scored

_PANES_A_COMMIT = 48
_CACHED_PANES = 512
_CURSORS = ("first_pane", "closed", "matured", "decided")
Cells = TypeVar("Cells", ScoredCells, MaturedCells)


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
    def missing(self, pane: int) -> range: ...
    def push(self, pane: int, cells: ScoredCells) -> None: ...
    def decide(
        self, pane: int, detector: str | None, log: DecisionLog, matured: MaturedCells, cells_sha256: str
    ) -> PaneDecision: ...


class Closer:
    """Advances one model key. `decider_from` builds the decider once the generation's first pane is known.

    `idle_inputs` names the label inputs to leave out of the minimum now, with their end positions.
    """

    def __init__(
        self,
        shards: ShardStore,
        state: StateStore,
        inputs: Inputs,
        decider_from: Callable[[int], PaneDecider],
        *,
        idle_inputs: Callable[[], Mapping[str, int]] = dict,
        may_expire: Callable[[Request, int], bool] = lambda request, matured: False,
    ) -> None:
        self._shards, self._state, self._inputs = shards, state, inputs
        self._settings = shards.settings
        self._decider_from = decider_from
        self._decider: PaneDecider | None = None
        self._idle_inputs = idle_inputs
        self._may_expire = may_expire
        self._log = DecisionLog()
        self._scored: OrderedDict[int, ScoredCells] = OrderedDict()
        self._matured: OrderedDict[int, tuple[MaturedCells, str]] = OrderedDict()

    def advance(self) -> bool:
        """Does what can be done now, a bounded piece of it; True when something was done.

        Raises PaneGoneError when the model key's state is older than what the shards have dropped.
        """
        shards = self._shards.progress()
        if not self._begin(shards):
            return False
        closed = self._close(shards)
        matured = self._mature(shards)
        decided = self._decide()
        self._remove(shards)
        return closed or matured or decided

    # --- where the clocks allow to go

    def _begin(self, shards: list[Progress]) -> bool:
        """Sets the generation's first pane once every score input has had its first event."""
        if self._cursors() is not None:
            return True
        firsts = [s.marks[i].first_clock_ms if i in s.marks else None for s in shards for i in self._inputs.scores]
        known = [first for first in firsts if first is not None]
        if not known or len(known) < len(firsts):
            return False
        first_pane = self._settings.first_pane(min(known))
        before = str(first_pane - 1)
        fields = {"first_pane": str(first_pane), "closed": before, "matured": before, "decided": before}
        self._state.commit(Commit(expect={"first_pane": None}, fields=fields))
        return True

    def _cursors(self) -> dict[str, int] | None:
        found = self._state.read(_CURSORS)
        if found["first_pane"] is None:
            return None
        at = {name: int(value) for name, value in found.items() if value is not None}
        if any(cache and next(reversed(cache)) > at["closed"] for cache in (self._scored, self._matured)):
            # The state was rolled back: what is derived again may have another cut.
            self._scored.clear()
            self._matured.clear()
            self._decider = None
        return at

    def _watermark(self, shards: list[Progress], inputs: tuple[str, ...], excluded: Mapping[str, int]) -> int | None:
        clocks = [s.marks[i].clock_ms if i in s.marks else None for s in shards for i in inputs if i not in excluded]
        known = [clock for clock in clocks if clock is not None]
        if not known or len(known) < len(clocks):
            return None
        return min(known) - self._settings.lateness_ms(inputs[0][0])

    def _last_below(self, watermark: int) -> int:
        """The last pane whose end the watermark has reached."""
        return watermark // self._settings.pane_ms - 1

    def _limit(self, shards: list[Progress], low: int, beyond: int) -> int | None:
        """Where cursors stop once every partition has ended: `beyond` panes after the last with a score."""
        if low < ENDED_CLOCK_MS - max(self._settings.score_lateness_ms, self._settings.label_lateness_ms):
            return None
        return max((s.last_pane for s in shards if s.last_pane is not None), default=-1) + beyond

    # --- the three cursors

    def _close(self, shards: list[Progress]) -> bool:
        low = self._watermark(shards, self._inputs.scores, {})
        at = self._cursors()
        if low is None or at is None:
            return False
        last = self._last_below(low)
        limit = self._limit(shards, low, self._settings.horizon_panes)
        last = last if limit is None else min(last, limit)
        found: dict[int, ScoredCells] = {}
        for pane in range(at["closed"] + 1, min(last, at["closed"] + _PANES_A_COMMIT) + 1):
            cells = read_scored(self._shards, pane, self._inputs)
            if cells is None:
                break
            found[pane] = cells
        if not found:
            return False
        change = Commit(
            expect={"closed": str(at["closed"])},
            fields={"closed": str(max(found))},
            blobs={PaneNames.of(pane).scored: cells.pack() for pane, cells in found.items()},
        )
        if self._state.commit(change):
            for pane, cells in found.items():
                _remember(self._scored, pane, cells)
        return True

    def _mature(self, shards: list[Progress]) -> bool:
        excluded = dict(self._idle_inputs())
        scores = self._watermark(shards, self._inputs.scores, {})
        labels = self._watermark(shards, self._inputs.labels, excluded)
        at = self._cursors()
        if scores is None or labels is None or at is None:
            return False
        low = min(scores, labels)
        last = min(self._last_below(low - self._settings.horizon_ms), at["closed"])
        limit = self._limit(shards, low, 0)
        last = last if limit is None else min(last, limit)
        chain_hash = self._chain_at(at["matured"], at["first_pane"])
        found: dict[int, tuple[MaturedCells, str]] = {}
        blobs: dict[str, bytes] = {}
        for pane in range(at["matured"] + 1, min(last, at["matured"] + _PANES_A_COMMIT) + 1):
            read = read_matured(self._shards, pane, self._inputs, excluded)
            if read is None:
                break
            packed, names = read.cells.pack(), PaneNames.of(pane)
            chain_hash = chained(chain_hash, packed)
            cells = read.cells
            record = PaneRecord(
                pane,
                read.counts,
                read.served,
                read.cut,
                read.entries,
                int(cells.labelled.sum()),
                int(cells.positives.sum()),
                int(cells.unlabelled.sum()),
                chain_hash,
            )
            blobs |= {names.matured: packed, names.record: record.encode()}
            found[pane] = (cells, chain_hash)
        if not found:
            return False
        # `closed` too: a state that was rolled back between the reads must not get panes matured that are not closed.
        expect = {"matured": str(at["matured"]), "closed": str(at["closed"])}
        if self._state.commit(Commit(expect, {"matured": str(max(found))}, {}, blobs)):
            for pane, value in found.items():
                _remember(self._matured, pane, value)
        return True

    def _decide(self) -> bool:
        at = self._cursors()
        if at is None:
            return False
        if self._decider is None:
            self._decider = self._decider_from(at["first_pane"])
        last = min(at["matured"], at["closed"] - self._decider.horizon_panes)
        if at["decided"] >= last:
            return False
        found = self._state.read(("decided", "tip", "detector"))
        self._read_log()
        if found["decided"] != str(at["decided"]) or found["tip"] != self._log.tip:
            return True
        if self._log.open_request is not None:
            return self._expire(self._log.open_request, at)
        tip, detector = found["tip"], found["detector"]
        decisions: list[bytes] = []
        outbox: list[bytes] = []
        open_request, decided = "", at["decided"]
        for pane in range(at["decided"] + 1, min(last, at["decided"] + _PANES_A_COMMIT) + 1):
            for closed in self._decider.missing(pane):
                self._decider.push(closed, self._scored_cells(closed))
            cells, cells_sha256 = self._matured_cells(pane)
            decision = self._decider.decide(pane, detector, self._log, cells, cells_sha256)
            detector, decided = decision.detector, pane
            decisions += decision.decisions
            outbox += decision.outbox
            open_request = decision.open_request
            if open_request:
                break
        new_tip = chain(tip, decisions)
        fields = {"decided": str(decided), "open_request": open_request}
        if detector is not None:
            fields["detector"] = detector
        if new_tip is not None:
            fields |= {"tip": new_tip, "log_length": str(self._log.length + len(decisions))}
        appends = {name: entries for name, entries in (("decisions", decisions), ("outbox", outbox)) if entries}
        self._state.commit(Commit({"decided": str(at["decided"]), "tip": tip}, fields, appends))
        return True

    def _expire(self, request: Request, at: Mapping[str, int]) -> bool:
        if not self._may_expire(request, at["matured"]):
            return False
        entry = Expired(pane=at["decided"] + 1, request_id=request.id).encode()
        tip = chain(self._log.tip, [entry])
        fields = {"open_request": "", "tip": str(tip), "log_length": str(self._log.length + 1)}
        expect = {"decided": str(at["decided"]), "tip": self._log.tip}
        self._state.commit(Commit(expect, fields, {"decisions": [entry]}))
        return True

    def _remove(self, shards: list[Progress]) -> None:
        """Drops panes of which `keep_panes` later ones have matured. Every commit that needs them has happened."""
        at = self._cursors()
        if at is None:
            return
        floor = at["matured"] - self._settings.keep_panes
        for shard, progress in enumerate(shards):
            first = at["first_pane"] if progress.removed is None else progress.removed + 1
            for pane in range(first, floor + 1):
                record = decode_record(self._blob(PaneNames.of(pane).record))
                cut = {input_key: by_shard[str(shard)] for input_key, by_shard in record.cut.items()}
                if not self._shards.remove(shard, pane, ReadGuard(self._inputs, matured=True, excluded=cut)):
                    break

    # --- what was committed

    def _read_log(self) -> None:
        known = self._state.read(("log_length",))["log_length"]
        if int(known or 0) < self._log.length:
            self._log = DecisionLog()  # the state was rolled back: read the log that survived
        self._log.extend(self._state.entries("decisions", self._log.length))

    def _chain_at(self, pane: int, first_pane: int) -> str:
        return "" if pane < first_pane else self._matured_cells(pane)[1]

    def _scored_cells(self, pane: int) -> ScoredCells:
        if pane not in self._scored:
            _remember(self._scored, pane, ScoredCells.unpack(self._blob(PaneNames.of(pane).scored)))
        return self._scored[pane]

    def _matured_cells(self, pane: int) -> tuple[MaturedCells, str]:
        if pane not in self._matured:
            names = PaneNames.of(pane)
            record = decode_record(self._blob(names.record))
            _remember(self._matured, pane, (MaturedCells.unpack(self._blob(names.matured)), record.chain))
        return self._matured[pane]

    def _blob(self, name: str) -> bytes:
        (blob,) = self._state.blobs([name])
        if blob is None:
            raise StateError(
                f"blob {name} is missing although its pane was committed; the model key's state is damaged"
            )
        return blob


Value = TypeVar("Value")


def _remember(cache: OrderedDict[int, Value], pane: int, value: Value) -> None:
    cache[pane] = value
    while len(cache) > _CACHED_PANES:
        cache.popitem(last=False)
