"""Label inputs that were left out when a pane matured: the one thing that the logs alone do not give.

The record of such a pane holds its cut: how far each shard had applied each input that was left out. A replay brings
such an input to each shard exactly as far before the pane is matured, and no further.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from stream_calib.windows.input_batch import InputBatch, Records, judge_records
from stream_calib.windows.kept_panes import FIELD as KEPT
from stream_calib.windows.kept_panes import kept_of
from stream_calib.windows.pane_record import PaneNames, decode_record
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.shard_store import Mark
from stream_calib.windows.state_store import StateStore

Cut: TypeAlias = Mapping[str, Mapping[str, int]]
"""Input key -> shard -> position of the next record."""
_PANES_A_READ = 500


@dataclass(frozen=True, slots=True)
class KnownCuts:
    """Of the panes up to `last_pane`; those without a cut were matured with all inputs."""

    last_pane: int
    cuts: Mapping[int, Cut] = field(default_factory=dict)

    @classmethod
    def of_state(cls, state: StateStore) -> KnownCuts:
        """As the pane records that are kept have them; of no pane where nothing has matured. Raises StateError where a
        record cannot be read."""
        fields = state.read(("first_pane", "matured", KEPT))
        kept = kept_of(fields)
        if kept is None or fields["matured"] is None:
            return cls(-1)
        last, cuts = int(fields["matured"]), dict[int, Cut]()
        for first in range(kept.first_pane, last + 1, _PANES_A_READ):
            panes = range(first, min(first + _PANES_A_READ, last + 1))
            for pane, blob in zip(panes, state.blobs([PaneNames.of(p).record for p in panes]), strict=True):
                # One that was dropped between the reads is older than what is compared.
                if blob is not None and (cut := decode_record(blob).cut):
                    cuts[pane] = cut
        return cls(last, cuts)


class CutSchedule:
    """Which inputs must stand where before a pane is matured."""

    def __init__(self, known: KnownCuts) -> None:
        self.last_pane = known.last_pane
        self._cuts = {pane: cut for pane, cut in known.cuts.items() if cut}
        self._panes = sorted(self._cuts)
        self._of_input: dict[str, list[int]] = defaultdict(list)
        for pane in self._panes:
            for input_key in self._cuts[pane]:
                self._of_input[input_key].append(pane)

    @property
    def inputs(self) -> frozenset[str]:
        """Those that some pane was matured without."""
        return frozenset(self._of_input)

    def cut(self, pane: int) -> Cut:
        """{} where the pane was matured with all inputs."""
        return self._cuts.get(pane, {})

    def uncut_from(self, pane: int) -> int | None:
        """How many panes follow each other from this one on without a cut; None: all."""
        place = bisect_left(self._panes, pane)
        return None if place == len(self._panes) else self._panes[place] - pane

    def limits(self, input_key: str, pane: int) -> Mapping[str, int] | None:
        """Shard -> position that the input must not pass before the next pane from `pane` on whose cut names it has
        matured; None: there is none."""
        panes = self._of_input[input_key]
        place = bisect_left(panes, pane)
        return None if place == len(panes) else self._cuts[panes[place]][input_key]


@dataclass
class _Piece:
    records: Records
    clock_ms: int | None
    """Before it."""
    done: set[int] = field(default_factory=set)
    """Shards that have applied it."""


class HeldInput:
    """What was read of one input and is not with all shards yet."""

    def __init__(self, input_key: str, start: Mark, shards: int, settings: PaneSettings) -> None:
        self._key, self._shards, self._settings = input_key, shards, settings
        self._clock_ms = start.clock_ms
        self._pieces: deque[_Piece] = deque()

    def add(self, records: Records) -> None:
        """Behind what was added before."""
        piece = _Piece(records, self._clock_ms)
        self._clock_ms = self._judged(piece).mark.clock_ms
        self._pieces.append(piece)

    def release(self, limits: Mapping[str, int] | None, apply: Callable[[InputBatch, Sequence[int]], None]) -> None:
        """Brings each shard what it may have by now."""
        if limits is not None:
            self._pieces = deque(part for piece in self._pieces for part in self._split(piece, limits))
        for piece in self._pieces:
            may = [
                shard
                for shard in range(self._shards)
                if shard not in piece.done and (limits is None or piece.records.end <= limits[str(shard)])
            ]
            if may:
                apply(self._judged(piece), may)
                piece.done.update(may)
        while self._pieces and len(self._pieces[0].done) == self._shards:
            self._pieces.popleft()

    def _judged(self, piece: _Piece) -> InputBatch:
        return judge_records(self._key, piece.records, piece.clock_ms, self._shards, self._settings)

    def _split(self, piece: _Piece, limits: Mapping[str, int]) -> Iterator[_Piece]:
        """At each limit that lies within it."""
        rest = piece
        for at in sorted({limit for limit in limits.values() if piece.records.start < limit < piece.records.end}):
            head = _Piece(rest.records.until(at), rest.clock_ms, set(piece.done))
            yield head
            rest = _Piece(rest.records.since(at), self._judged(head).mark.clock_ms, set(piece.done))
        yield rest
