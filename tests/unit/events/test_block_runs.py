"""Runs of rows of several model keys: none changes whether a row is late."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_calib.events.block_runs import run_starts

LATENESS_MS = 10


def late_one_by_one(rows: list[tuple[int, bool, int]]) -> list[bool]:
    clock, late = -1, []
    for time, moves, _ in rows:
        late.append(time < clock - LATENESS_MS)
        clock = max(clock, time) if moves else clock
    return late


def late_in_blocks(rows: list[tuple[int, bool, int]]) -> list[bool]:
    """As the monitor judges them: in each run the rows of one key after those of another."""
    times, moves = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    starts = run_starts(times, moves, LATENESS_MS)
    assert starts == sorted(set(starts))
    assert starts[0] == 0
    clock, late = -1, [False] * len(rows)
    for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
        for key in (0, 1, 2):
            for i in range(start, stop):
                if rows[i][2] == key:
                    late[i] = rows[i][0] < clock - LATENESS_MS
                    clock = max(clock, rows[i][0]) if rows[i][1] else clock
    return late


@given(st.lists(st.tuples(st.integers(0, 60), st.booleans(), st.integers(0, 2)), min_size=1, max_size=40))
def test_blocks_make_no_row_late_and_none_early(rows: list[tuple[int, bool, int]]) -> None:
    assert late_in_blocks(rows) == late_one_by_one(rows)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([5, 6, 7], [0]),
        ([0, 10, 3], [0]),
        ([0, 11, 12, 21, 22, 23], [0, 1, 4]),
        ([0, 30, 1, 2, 31], [0, 1, 2]),
    ],
)
def test_runs_are_as_long_as_they_can_be(times: list[int], expected: list[int]) -> None:
    assert run_starts(np.array(times), np.ones(len(times), dtype=bool), LATENESS_MS) == expected


def test_what_is_too_far_ahead_cuts_nothing() -> None:
    assert run_starts(np.array([0, 1_000, 1]), np.array([True, False, True]), LATENESS_MS) == [0]
