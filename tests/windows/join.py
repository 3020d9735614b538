"""A driver for tests of the join: one worker that writes records to inputs, and reads panes as the closer does."""

from __future__ import annotations

from collections.abc import Mapping

from stream_calib.windows.intake import Intake
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.registration import inputs_of
from stream_calib.windows.shard_store import Inputs, Mark, PaneCounters, ReadGuard, ShardStore
from stream_calib.windows.walk import MaturedPane, read_matured, read_scored
from tests.oracle.offline import Clock, Label, Score
from tests.windows.expectation import matured_of, scored_of
from tests.windows.logs import START_MS, ms, settings_with
from tests.windows.records import Block, Item, batch

SETTINGS = settings_with(skew=False)
"""Panes of 10 s, horizon 15 s, latenesses 3 and 4 s, two panes are kept. Times in tests are seconds after START."""
PANE_0 = START_MS // SETTINGS.pane_ms
S, L = "s:b:0", "l:t:0"


def block(*scores: tuple[str, float], score: float = 0.25, attribute: str = "a", snapshot: str = "") -> Block:
    """Scores given as (id, seconds)."""
    return Block(tuple(Score(i, at(t), score, (attribute,)) for i, t in scores), snapshot)


def label(event_id: str, seconds: float, value: int | None = 1) -> Label:
    return Label(event_id, at(seconds), value)


def clock(seconds: float) -> Clock:
    return Clock(at(seconds))


def at(seconds: float) -> int:
    return ms(0) + round(1_000 * seconds)


class Join:
    """The inputs are `s:b:<i>` and `l:t:<i>`."""

    def __init__(self, store: ShardStore, scores: int = 1, labels: int = 1) -> None:
        self.store = store
        self.settings: PaneSettings = store.settings
        names = [*(f"s:b:{i}" for i in range(scores)), *(f"l:t:{i}" for i in range(labels))]
        self.inputs = inputs_of(names)
        self.items: dict[str, list[Item]] = {name: [] for name in names}
        self.marks_at: dict[str, list[Mark]] = {name: [Mark(0, None)] for name in names}
        """Input -> the mark before each record."""
        self.intake = Intake(store, self.register)

    def register(self) -> Inputs:
        self.store.register(dict.fromkeys((*self.inputs.scores, *self.inputs.labels), Mark(0, None)))
        return self.inputs

    def write(self, key: str, *items: Item) -> dict[str, Mark]:
        """Appends the records to the input's log and applies them. What must be rewound."""
        start = len(self.items[key])
        self.append(key, *items)
        return self.deliver(key, start, len(self.items[key]))

    def append(self, key: str, *items: Item) -> None:
        """To the input's log only."""
        self.items[key] += items
        for item in items:
            made = batch(key, [item], self.marks_at[key][-1], self.store.count, self.settings)
            self.marks_at[key].append(made.mark)

    def deliver(self, key: str, start: int, stop: int) -> dict[str, Mark]:
        """Applies records start <= position < stop of the input's log, as a worker that stands at `start` would."""
        mark = self.marks_at[key][start]
        made = batch(key, self.items[key][start:stop], mark, self.store.count, self.settings)
        return self.intake.apply([made])

    def move_clocks(self, seconds: float) -> None:
        """A clock record on every input."""
        for key in self.items:
            self.write(key, clock(seconds))

    def scored(self, pane: int) -> dict[tuple[int, int], int] | None:
        """Scored cells of the pane (counted from PANE_0), None for "not yet"."""
        cells = read_scored(self.store, PANE_0 + pane, self.inputs)
        return None if cells is None else scored_of(cells)

    def try_matured(self, pane: int, excluded: Mapping[str, int] | None = None) -> MaturedPane | None:
        return read_matured(self.store, PANE_0 + pane, self.inputs, excluded or {})

    def matured(self, pane: int, excluded: Mapping[str, int] | None = None) -> MaturedPane:
        found = self.try_matured(pane, excluded)
        assert found is not None, f"pane {pane} is not mature"
        return found

    def sums(self, pane: int) -> tuple[int, int, int]:
        """(labelled, positives, unlabelled) of a matured pane."""
        rows = matured_of(self.matured(pane).cells).values()
        labelled, positives, unlabelled = (sum(column) for column in zip(*rows, strict=True)) if rows else (0, 0, 0)
        return labelled, positives, unlabelled

    def counters(self, shard: int, pane: int, excluded: Mapping[str, int] | None = None) -> PaneCounters | None:
        return self.store.read_counters(shard, PANE_0 + pane, self.guard(excluded))

    def guard(self, excluded: Mapping[str, int] | None = None, *, matured: bool = True) -> ReadGuard:
        return ReadGuard(self.inputs, matured, excluded or {})

    def remove(self, pane: int) -> list[bool]:
        """Of every shard."""
        return [self.store.remove(shard, PANE_0 + pane, self.guard()) for shard in range(self.store.count)]
