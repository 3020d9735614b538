"""What is read back of a model key's state is kept only as long as it is small."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest

from stream_calib.windows import committed
from stream_calib.windows.cells import EMPTY_SCORED, ScoredCells
from stream_calib.windows.committed import Committed
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.pane_record import PaneNames
from stream_calib.windows.state_store import Commit


class Counted(MemoryState):
    def __init__(self) -> None:
        super().__init__()
        self.read_blobs: list[str] = []

    def blobs(self, names: Sequence[str]) -> list[bytes | None]:
        self.read_blobs += names
        return super().blobs(names)


def cells(n: int) -> ScoredCells:
    return ScoredCells(np.arange(n, dtype=np.uint64), np.zeros(n, np.uint16), np.ones(n, np.int64))


def stored(panes: int, n: int) -> Counted:
    state = Counted()
    state.commit(Commit(blobs={PaneNames.of(pane).scored: cells(n).pack() for pane in range(panes)}))
    return state


def test_cells_are_kept_until_they_are_asked_for() -> None:
    state = stored(3, 4)
    reader = Committed(state)
    reader.remember_scored(1, cells(4))
    assert len(reader.scored_cells(1).signature) == 4
    assert state.read_blobs == []
    for pane in (1, 1, 2):
        assert len(reader.scored_cells(pane).signature) == 4
    assert state.read_blobs == ["scored:1", "scored:1", "scored:2"]


def test_a_service_that_runs_for_long_keeps_nothing_of_the_panes_it_has_decided() -> None:
    state = stored(200, 500)
    reader = Committed(state)
    reader.scored_cells(0)
    kept = []
    tracemalloc.start()
    for pane in range(200):
        reader.remember_scored(pane, cells(500))
        reader.scored_cells(pane)
        kept.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert kept[-1] < kept[20] + 20_000, "one pane is 9 kB"
    assert state.read_blobs == ["scored:0"]


def test_while_nothing_is_decided_the_newest_panes_are_kept_as_long_as_their_cells_are_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(committed, "_CACHED_CELLS", 10)
    state = stored(3, 4)
    reader = Committed(state)
    for pane in range(3):
        reader.remember_scored(pane, cells(4))
    for pane in range(3):
        reader.scored_cells(pane)
    assert state.read_blobs == ["scored:0"]


def test_a_pane_that_is_too_large_is_kept_alone_and_empty_ones_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committed, "_CACHED_CELLS", 10)
    state = Counted()
    state.commit(Commit(blobs={PaneNames.of(pane).scored: EMPTY_SCORED.pack() for pane in range(12)}))
    reader = Committed(state)
    reader.remember_scored(99, cells(50))
    assert len(reader.scored_cells(99).signature) == 50
    for pane in range(12):
        reader.remember_scored(pane, EMPTY_SCORED)
    for pane in range(12):
        reader.scored_cells(pane)
    assert state.read_blobs == ["scored:0", "scored:1"]
