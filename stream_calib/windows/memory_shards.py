"""The join in memory: the port of shard_store.py as plainly as it can be said. For tests, backtests and reading."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from stream_calib.errors import PaneGoneError
from stream_calib.windows.clocks import least_of_all
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.plain_join import PlainJoin
from stream_calib.windows.shard_join import ShardJoin
from stream_calib.windows.shard_store import (
    LABEL_CLASSES,
    Entry,
    Inputs,
    LabelRows,
    Mark,
    PaneCounters,
    PaneRows,
    Progress,
    ReadGuard,
    ScoreRows,
    ShardCall,
    ShardNotAt,
    ShardStore,
)

Rows = TypeVar("Rows", ScoreRows, LabelRows)


@dataclass
class _Shard:
    join: ShardJoin
    marks: dict[str, Mark] = field(default_factory=dict)
    counts: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Pane -> kind -> how many; but for those that the join has."""
    entries: dict[str, dict[int, Entry]] = field(default_factory=lambda: defaultdict(dict))
    removed: int = -1
    origin: int | None = None
    last: int | None = None
    registered: tuple[int, int] = (0, 0)
    """Numbers of score and label inputs."""

    def counted(self, pane: int) -> Counter[str]:
        """Kind -> how many of the pane."""
        found = Counter(self.counts.get(pane))
        found.update(self.join.counts().get(pane))
        return found

    def note_inputs(self, inputs: Inputs | None) -> None:
        if inputs is not None:
            scores, labels = self.registered
            self.registered = max(scores, len(inputs.scores)), max(labels, len(inputs.labels))

    def knows_more_than(self, inputs: Inputs) -> bool:
        return self.registered[0] > len(inputs.scores) or self.registered[1] > len(inputs.labels)

    def low(self, inputs: Sequence[str], lateness_ms: int, excluded: Mapping[str, int]) -> int:
        least = least_of_all([self.marks[i].clock_ms if i in self.marks else None for i in inputs if i not in excluded])
        return -1 if least is None else least - lateness_ms


class MemoryShards(ShardStore):
    """See ShardStore."""

    def __init__(self, count: int, settings: PaneSettings) -> None:
        super().__init__(count, settings)
        self._shards = [_Shard(self._join()) for _ in range(count)]

    def _join(self) -> ShardJoin:
        """A new one, for a shard."""
        return PlainJoin(self.settings)

    def register(self, marks: Mapping[str, Mark], inputs: Inputs | None = None) -> None:
        for shard in self._shards:
            self._register(shard, marks, None)
            if shard.marks:
                shard.note_inputs(inputs)

    def restart_wiped(self, shard: int, marks: Mapping[str, Mark], origin: int, inputs: Inputs | None = None) -> None:
        if not self._shards[shard].marks:
            fresh = self._shards[shard] = _Shard(self._join(), removed=origin, origin=origin)
            self._register(fresh, marks, origin)
            fresh.note_inputs(inputs)

    def _register(self, shard: _Shard, marks: Mapping[str, Mark], origin: int | None) -> None:
        for input_key, mark in marks.items():
            if input_key not in shard.marks:
                shard.marks[input_key] = mark
                if (pane := mark.entered_pane(self.settings.pane_ms, origin)) is not None:
                    shard.entries[input_key].setdefault(pane, Entry(pane, mark.next, mark.clock_ms))

    def progress(self) -> list[Progress]:
        return [
            Progress(dict(s.marks), None if s.removed < 0 else s.removed, s.last, s.registered) for s in self._shards
        ]

    def attach(self) -> None:
        """Memory is not restarted."""

    def apply(self, calls: Sequence[ShardCall], inputs: Inputs) -> list[ShardNotAt | None]:
        return [self._apply(self._shards[call.shard], call, inputs) for call in calls]

    def _apply(self, shard: _Shard, call: ShardCall, inputs: Inputs) -> ShardNotAt | None:
        at = {i: shard.marks.get(i, Mark(0, None)) for i in call.advances}
        if shard.registered[0] > len(inputs.scores) or any(
            i not in shard.marks or at[i].next != advance.start for i, advance in call.advances.items()
        ):
            return ShardNotAt(at)
        self._scores(shard, call.scores)
        later = self._later_pane(shard, inputs)
        self._labels(shard, call.labels, later)
        for drop in call.drops:
            self._count(shard, drop.kind, drop.pane, drop.n, later)
        for input_key, entries in call.entries.items():
            for entry in entries:
                shard.entries[input_key].setdefault(entry.pane, entry)
        for input_key, advance in call.advances.items():
            clock = advance.clock_ms if advance.clock_ms is not None else at[input_key].clock_ms
            first_clock = advance.first_clock_ms if at[input_key].clock_ms is None else at[input_key].first_clock_ms
            shard.marks[input_key] = Mark(advance.end, clock, first_clock)
        return None

    def _scores(self, shard: _Shard, rows: ScoreRows) -> None:
        panes = rows.event_time_ms // self.settings.pane_ms
        for pane, n in _numbers(panes):
            shard.last = pane if shard.last is None else max(shard.last, pane)
            if pane > shard.removed:
                shard.counts[pane]["accepted"] += n
        if len(kept := _kept(rows, panes, shard.removed)):
            shard.join.add_scores(kept)

    def _labels(self, shard: _Shard, rows: LabelRows, later: int) -> None:
        panes = rows.event_time_ms // self.settings.pane_ms
        for pane, n in _numbers(panes):
            self._count(shard, "labels", pane, n, later)
        if len(kept := _kept(rows, panes, shard.removed)):
            shard.join.add_labels(kept)

    def _later_pane(self, shard: _Shard, inputs: Inputs) -> int:
        """A pane that no closer can have matured: the shard's own score watermark has not reached its end."""
        low = shard.low(inputs.scores, self.settings.score_lateness_ms, {})
        return max(low // self.settings.pane_ms, shard.removed + 1)

    def _count(self, shard: _Shard, kind: str, pane: int, n: int, later: int) -> None:
        """What comes for a pane that was dropped is counted in a later one; before the origin it was, already."""
        if pane > shard.removed:
            shard.counts[pane][kind] += n
        elif shard.origin is None or pane > shard.origin:
            shard.counts[later]["label_after_mature" if kind == "labels" else kind] += n

    def _admit(self, number: int, pane: int, guard: ReadGuard) -> dict[str, int] | None:
        """The cut, None for "not yet"; PaneGoneError as in lua/clocks.lua (admit)."""
        shard, s = self._shards[number], self.settings
        if shard.knows_more_than(guard.inputs):
            return None
        needed = s.end_ms(pane) + (s.horizon_ms if guard.matured else 0)
        if shard.low(guard.inputs.scores, s.score_lateness_ms, {}) < needed:
            return None
        cut: dict[str, int] = {}
        if guard.matured:
            if not guard.excluded.keys() <= shard.marks.keys():
                return None
            cut = {i: shard.marks[i].next for i in guard.excluded}
            if any(cut[i] < end for i, end in guard.excluded.items()):
                return None
            if shard.low(guard.inputs.labels, s.label_lateness_ms, guard.excluded) < needed:
                return None
        behind = shard.origin is not None and guard.matured and pane <= shard.origin + s.back_panes
        if pane <= shard.removed or behind:
            raise PaneGoneError(
                f"shard {number} has dropped pane {pane}: the model key's state is older than its shards"
            )
        return cut

    def read_rows(self, shard: int, pane: int, guard: ReadGuard) -> PaneRows | None:
        cut = self._admit(shard, pane, guard)
        return None if cut is None else PaneRows(self._shards[shard].join.rows(pane), cut)

    def read_labels(
        self, shard: int, pane: int, guard: ReadGuard, fingerprint: NDArray[np.uint64], event_time_ms: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint8], dict[str, int]] | None:
        cut = self._admit(shard, pane, guard)
        if cut is None:
            return None
        return self._shards[shard].join.best(fingerprint, event_time_ms), cut

    def read_counters(self, shard: int, pane: int, guard: ReadGuard) -> PaneCounters | None:
        cut = self._admit(shard, pane, guard)
        if cut is None:
            return None
        state = self._shards[shard]
        counts = {kind: n for kind, n in state.counted(pane).items() if n}
        entries = {}
        for input_key in (*guard.inputs.scores, *guard.inputs.labels):
            reached = [entry for p, entry in state.entries[input_key].items() if p >= pane]
            now = state.marks[input_key]
            # Not that of the least pane: a label may be dated ahead of a broker clock.
            place = min(reached, key=lambda entry: entry.position, default=Entry(pane, now.next, now.clock_ms))
            entries[input_key] = place._replace(pane=pane)
        return PaneCounters(counts, entries, cut)

    def counts_after(self, pane: int) -> dict[str, int]:
        return self._counts(lambda counted: counted > pane)

    def counts_before(self, pane: int) -> dict[str, int]:
        return self._counts(lambda counted: counted < pane)

    def _counts(self, wanted: Callable[[int], bool]) -> dict[str, int]:
        total = Counter[str]()
        for shard in self._shards:
            for pane in filter(wanted, {*shard.counts, *shard.join.counts()}):
                total.update(shard.counted(pane))
        return {kind: n for kind, n in total.items() if n}

    def remove(self, shard: int, pane: int, guard: ReadGuard, recorded: Mapping[str, int] | None = None) -> bool:
        state = self._shards[shard]
        if pane <= state.removed:
            return True
        if state.removed >= 0 and pane != state.removed + 1:
            return False
        try:
            if self._admit(shard, pane, guard) is None:
                return False
        except PaneGoneError:
            # A pane that a wiped shard answers as gone was read before the wipe; it must still be dropped.
            pass
        low = state.low(guard.inputs.scores, self.settings.score_lateness_ms, {})
        state.join.remove(pane, low)
        for reached in [p for entries in state.entries.values() for p in entries if p <= pane]:
            for entries in state.entries.values():
                entries.pop(reached, None)
        state.removed = pane
        later = self._later_pane(state, guard.inputs)
        if recorded is not None:
            for kind in LABEL_CLASSES:
                since = state.counts[pane][kind] - recorded.get(kind, 0)
                self._count(state, kind, pane, max(since, 0), later)
        state.counts.pop(pane, None)
        return True


def _numbers(panes: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Pane -> how many are of it, for the distinct ones in order."""
    found, n = np.unique(panes, return_counts=True)
    return list(zip(found.tolist(), n.tolist(), strict=True))


def _kept(rows: Rows, panes: NDArray[np.int64], removed: int) -> Rows:
    """The rows of panes after `removed`."""
    kept = panes > removed
    return rows if kept.all() else rows.take(np.flatnonzero(kept))
