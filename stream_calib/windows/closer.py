"""The closer: advances the three cursors closed, matured, decided of one model key, each by compare-and-set.

Any number of closers may run at once, be paused, and go on: what they read is a pure function of the logs, and a commit
that comes second finds its expectation gone. The lease only saves work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from stream_calib import fault_points
from stream_calib.errors import StateError, StateUnavailableError
from stream_calib.snapshot.decision_log import DecisionLog, Request
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.clocks import least_of_all
from stream_calib.windows.committed import Committed, Cursors
from stream_calib.windows.decider_port import PaneDecider, Retention
from stream_calib.windows.decision_commits import decided_commit, expired_commit
from stream_calib.windows.pane_record import PaneNames, PaneRecord, chained
from stream_calib.windows.shard_store import Progress, ReadGuard, ShardStore
from stream_calib.windows.state_store import Commit, StateStore
from stream_calib.windows.vocabulary import Vocabulary
from stream_calib.windows.walk import MaturedPane, read_matured, read_scored
from stream_calib.windows.watermarks import first_pane, last_scored, last_to_close, last_to_mature, watermark

_PANES_A_COMMIT = 48


class _MovedOnError(Exception):
    """Another closer went on, or the state was rolled back, while this one worked on what it had read."""


class Closer:
    """Advances one model key. `decider_from` builds the decider once the generation's first pane is known; without one
    panes are closed and matured only.

    `idle_inputs` names the label inputs to leave out of the minimum now, with their end positions. `retention` drops
    what is done with; without one everything stays. `vocabulary` says how many values of an attribute a matured pane
    counts apart; without one it is all of them.
    """

    def __init__(
        self,
        shards: ShardStore,
        state: StateStore,
        decider_from: Callable[[int], PaneDecider] | None,
        *,
        idle_inputs: Callable[[], Mapping[str, int]] = dict,
        may_expire: Callable[[Request, int], bool] = lambda request, matured: False,
        retention: Retention | None = None,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        self._shards, self._state = shards, state
        self._settings = shards.settings
        self._decider_from = decider_from
        self._decider: PaneDecider | None = None
        self._idle_inputs = idle_inputs
        self._may_expire = may_expire
        self._retention = retention
        self._vocabulary = vocabulary
        self._inverse_rates = None if vocabulary is None else vocabulary.inverse_rates(state.signatures)
        self._committed = Committed(state)
        self.watermarks: dict[str, int | None] = {}
        """Side ("s", "l") -> its watermark when it was last looked at, epoch milliseconds; None: not known yet."""
        self.last_scored_pane: int | None = None
        """The last pane with a score when it was last looked at."""

    def advance(self, most_matured: int = _PANES_A_COMMIT) -> bool:
        """Does what can be done now, a bounded piece of it; True when something was done. `most_matured`: so many
        panes at most are matured.

        Raises PaneGoneError when the model key's state is older than what the shards have dropped.
        """
        shards = self._shards.progress()
        self.last_scored_pane = last_scored(shards)
        if not self._begin(shards):
            return False
        try:
            closed = self._close(shards)
            matured = self._mature(shards, most_matured)
            decided = self._decide()
            self._remove(shards)
            if decided and self._retention is not None:
                self._retention.advance(least_of_all([shard.removed for shard in shards]))
        except _MovedOnError:
            return True
        return closed or matured or decided

    @contextmanager
    def _work_from(self, at: Cursors, shards: Sequence[Progress] = ()) -> Iterator[None]:
        """What is found missing counts only while the state, and what `shards` had removed, is as it was read: a closer
        that was paused must not take for damage that others have gone on, and panes were dropped since."""
        try:
            yield
        except StateUnavailableError:
            raise
        except StateError as error:
            removed = [shard.removed for shard in self._shards.progress()] if shards else []
            if self._committed.cursors() != at or removed != [shard.removed for shard in shards]:
                raise _MovedOnError from error
            raise

    def _begin(self, shards: list[Progress]) -> bool:
        """Sets the generation's first pane once every score input has had its first event."""
        if self._committed.cursors() is not None:
            return True
        count = self._committed.registered()
        first = first_pane(shards, self._committed.inputs(count).scores, self._settings)
        if first is None:
            return False
        fields = {"first_pane": str(first), "matured_chain": ""}
        fields |= dict.fromkeys(("closed", "matured", "decided"), str(first - 1))
        expect = {"first_pane": None, "inputs": None if count is None else str(count)}
        self._state.commit(Commit(expect=expect, fields=fields))
        return True

    # --- the three cursors

    def _close(self, shards: list[Progress]) -> bool:
        at = self._committed.cursors()
        if at is None:
            return False
        inputs = self._committed.inputs(at.inputs)
        low = self.watermarks["s"] = watermark(shards, inputs.scores, self._settings)
        if low is None:
            return False
        last = last_to_close(shards, low, self._settings)
        found: dict[int, ScoredCells] = {}
        with self._work_from(at):
            for pane in range(at.closed + 1, min(last, at.closed + _PANES_A_COMMIT) + 1):
                cells = read_scored(self._shards, pane, inputs)
                if cells is None:
                    break
                found[pane] = cells
        if not found:
            return False
        blobs = {PaneNames.of(pane).scored: cells.pack() for pane, cells in found.items()}
        if self._commit("closer.close", Commit(at.expect("closed", "inputs"), {"closed": str(max(found))}, {}, blobs)):
            for pane, cells in found.items():
                self._committed.remember_scored(pane, cells)
        return True

    def _mature(self, shards: list[Progress], most: int) -> bool:
        at = self._committed.cursors()
        if at is None:
            return False
        inputs = self._committed.inputs(at.inputs)
        excluded = {i: end for i, end in self._idle_inputs().items() if i in inputs.labels}
        scores = watermark(shards, inputs.scores, self._settings)
        labels = self.watermarks["l"] = watermark(shards, inputs.labels, self._settings, excluded)
        if scores is None or labels is None:
            return False
        last = min(last_to_mature(shards, scores, labels, self._settings), at.closed)
        found: dict[int, tuple[MaturedCells, str]] = {}
        blobs: dict[str, bytes] = {}
        chain_hash = at.matured_chain
        signatures: dict[int, tuple[str, ...]] = {}
        with self._work_from(at):
            for pane in range(at.matured + 1, min(last, at.matured + min(most, _PANES_A_COMMIT)) + 1):
                read = read_matured(self._shards, pane, inputs, excluded, self._inverse_rates)
                if read is None:
                    break
                if self._vocabulary is not None:
                    read = self._vocabulary.cap_pane(read, self._state.signatures, signatures)
                packed, names = read.cells.pack(), PaneNames.of(pane)
                chain_hash = chained(chain_hash, packed)
                blobs |= {names.matured: packed, names.record: _record(pane, read, chain_hash).encode()}
                found[pane] = (read.cells, chain_hash)
        if not found:
            return False
        if signatures:
            self._state.put_signatures(signatures, max(found) * self._settings.pane_ms)
        # `closed` too: a state that was rolled back between the reads must not get panes matured that are not closed.
        fields = {"matured": str(max(found)), "matured_chain": chain_hash}
        expect = at.expect("matured", "matured_chain", "closed", "inputs")
        if self._commit("closer.mature", Commit(expect, fields, {}, blobs)):
            for pane, value in found.items():
                self._committed.remember_matured(pane, *value)
        return True

    def _decide(self) -> bool:
        at, detector = self._committed.cursors_and_detector()
        if at is None or self._decider_from is None:
            return False
        if self._decider is None:
            self._decider = self._decider_from(at.first_pane)
        last = min(at.matured, at.closed - self._decider.horizon_panes)
        if at.decided >= last:
            return False
        with self._work_from(at):
            log = self._committed.decision_log(at)
            if log.open_request is not None:
                return self._expire(log.open_request, at)
            change = self._decided(self._decider, at, detector, log, last)
        self._commit("closer.decide", change)
        return True

    def _decided(self, decider: PaneDecider, at: Cursors, detector: str | None, log: DecisionLog, last: int) -> Commit:
        decisions: list[bytes] = []
        outbox: list[bytes] = []
        open_request, decided = "", at.decided
        for pane in range(at.decided + 1, min(last, at.decided + _PANES_A_COMMIT) + 1):
            for closed in decider.missing(pane):
                decider.push(closed, self._committed.scored_cells(closed))
            cells, cells_sha256 = self._committed.matured_cells(pane)
            decision = decider.decide(pane, detector, log, cells, cells_sha256)
            detector, decided = decision.detector, pane
            decisions += decision.decisions
            outbox += decision.outbox
            open_request = decision.open_request
            if open_request:
                break
        return decided_commit(
            # All that the decision was made from: a state that was rolled back meanwhile may hold other cells.
            at.expect("decided", "tip", "matured", "matured_chain", "closed"),
            at.tip,
            at.log_length,
            decided=decided,
            detector=detector,
            open_request=open_request,
            decisions=decisions,
            outbox=outbox,
        )

    def _commit(self, call: str, change: Commit) -> bool:
        fault_points.before(call)
        done = self._state.commit(change)
        fault_points.after(call)
        return done

    def _expire(self, request: Request, at: Cursors) -> bool:
        if not self._may_expire(request, at.matured):
            return False
        pane = at.decided + 1
        told = () if self._decider is None else self._decider.expired(request, pane)
        expect = at.expect("decided", "tip")
        self._state.commit(expired_commit(expect, at.tip, at.log_length, request=request, pane=pane, outbox=told))
        return True

    def _remove(self, shards: list[Progress]) -> None:
        """Drops panes of which `keep_panes` later ones have matured. Every commit that needs them has happened."""
        at = self._committed.cursors()
        if at is None:
            return
        inputs = self._committed.inputs(at.inputs)
        floor = at.matured - self._settings.keep_panes
        records: dict[int, PaneRecord] = {}
        with self._work_from(at, shards):
            for shard, progress in enumerate(shards):
                # A shard that was wiped has nothing of panes that are not kept.
                first = self._committed.kept_from(at) if progress.removed is None else progress.removed + 1
                for pane in range(first, floor + 1):
                    if pane not in records:
                        records[pane] = self._committed.record(pane)
                    cut = {input_key: by_shard[str(shard)] for input_key, by_shard in records[pane].cut.items()}
                    guard = ReadGuard(inputs, matured=True, excluded=cut)
                    if not self._shards.remove(shard, pane, guard, records[pane].labels_at_cut.get(str(shard))):
                        break


def _record(pane: int, read: MaturedPane, chain_hash: str) -> PaneRecord:
    cells = read.cells
    labelled, positives, unlabelled = (int(c.sum()) for c in (cells.labelled, cells.positives, cells.unlabelled))
    return PaneRecord(
        pane,
        read.counts,
        read.served,
        read.cut,
        read.entries,
        labelled,
        positives,
        unlabelled,
        chain_hash,
        read.labels_at_cut,
    )
