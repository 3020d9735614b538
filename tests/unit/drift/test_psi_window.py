from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stream_calib.drift import psi_window
from stream_calib.drift.psi import PsiReference, ReferenceGroup
from stream_calib.drift.psi_window import PsiWindow

VALUES = {1: ("a", "x"), 2: ("a", "y"), 3: ("b", "x"), 2**63 + 5: ("c", "z")}
ATTRIBUTES = ["first", "second"]


def signatures(hashes: Iterable[int]) -> dict[int, tuple[str, ...]]:
    return {h: VALUES[h] for h in hashes}


def reference(cut: int) -> PsiReference:
    groups = [
        ReferenceGroup(None, None, (cut, 401), (10.0, 10.0), 1.0),
        ReferenceGroup("first", "a", (cut + 1, cut + 2, 401), (5.0, 5.0, 5.0), 1.0),
        ReferenceGroup("second", "x", (cut, 401), (5.0, 5.0), 1.0),
    ]
    return PsiReference(groups, 1.0)


Cells = list[tuple[int, int, int]]


def columns(cells: Cells) -> tuple[NDArray[np.uint64], NDArray[np.uint16], NDArray[np.int64]]:
    return (
        np.array([c[0] for c in cells], dtype=np.uint64),
        np.array([c[1] for c in cells], dtype=np.uint16),
        np.array([c[2] for c in cells], dtype=np.int64),
    )


def by_hand(panes: list[Cells], used: PsiReference) -> NDArray[np.int64]:
    counts = np.zeros(used.rows.shape, dtype=np.int64)
    for cells in panes:
        for h, grid_bin, n in cells:
            for g, group in enumerate(used.groups):
                values = dict(zip(ATTRIBUTES, VALUES[h], strict=True))
                if group.attribute is None or values[group.attribute] == group.value:
                    counts[g, used.bin_of[g, grid_bin]] += n
    return counts


cells = st.lists(st.tuples(st.sampled_from(sorted(VALUES)), st.integers(0, 401), st.integers(1, 50)), max_size=8)


@settings(max_examples=50, deadline=None)
@given(st.lists(cells, min_size=1, max_size=12), st.integers(1, 5), st.integers(0, 11))
def test_sums_equal_those_from_scratch_whenever_the_reference_changes(
    panes: list[Cells], length: int, change_at: int
) -> None:
    window = PsiWindow(length, ATTRIBUTES, signatures)
    old, new = reference(100), reference(200)
    window.use(old)
    for pane, pane_cells in enumerate(panes):
        window.push(pane, *columns(pane_cells))
        if pane == change_at:
            window.use(new)
        used = new if pane >= change_at else old
        counts = window.counts
        assert counts is not None
        assert (counts == by_hand(panes[max(0, pane - length + 1) : pane + 1], used)).all()
        assert window.newest_rows == sum(c[2] for c in pane_cells)


def test_signatures_that_were_forgotten_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psi_window, "_MOST_CACHED", 2)
    asked: list[int] = []

    def noting(hashes: Iterable[int]) -> dict[int, tuple[str, ...]]:
        asked.extend(hashes)
        return signatures(asked)

    window, panes = PsiWindow(2, ATTRIBUTES, noting), [[(1, 7, 1)], [(2, 7, 1), (3, 7, 1)], [(1, 7, 5)], [(2, 7, 1)]]
    window.use(reference(100))
    for pane, pane_cells in enumerate(panes):
        window.push(pane, *columns(pane_cells))
        assert len(window._values) <= 2
    counts = window.counts
    assert counts is not None
    assert (counts == by_hand(panes[2:], reference(100))).all()
    assert asked.count(1) == 2


def test_panes_must_follow_each_other() -> None:
    window = PsiWindow(3, ATTRIBUTES, signatures)
    window.push(4, *columns([]))
    with pytest.raises(ValueError, match="follow"):
        window.push(6, *columns([]))
    window.clear()
    window.push(6, *columns([]))
    assert window.newest == 6


def test_without_a_reference_there_are_no_counts() -> None:
    window = PsiWindow(3, ATTRIBUTES, signatures)
    window.push(1, *columns([(1, 5, 3)]))
    assert window.counts is None
    window.use(reference(100))
    counts = window.counts
    assert counts is not None
    assert counts.sum() == 9  # everything, first=a, second=x
