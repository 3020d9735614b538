"""One empty bin made PSI infinite. Elsewhere a tiny number filled it, another one on each side, and a handful of rows
in a new bin looked like a change of everything.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.calibration.grid import N_BINS
from stream_calib.drift.psi import KNOWN, UNDEFINED, PsiReference, ReferenceGroup, look, psi_of, shares
from stream_calib.drift.psi_window import PsiWindow
from tests.cases.drift import grid_counts, look_at, reference_of

BINS = (100, 200, 300)


def test_an_empty_bin_of_the_reference_is_merged_and_a_true_change_is_told() -> None:
    reference = reference_of(grid_counts(zip(BINS, [500, 500, 0], strict=True)))
    found = look_at(reference, grid_counts(zip(BINS, [0, 500, 500], strict=True)))
    assert found.status[0] == KNOWN
    assert found.psi[0] == pytest.approx(3.80, abs=0.005)
    assert found.alarm[0]


def test_unmerged_a_half_row_a_bin_keeps_it_finite() -> None:
    used = np.ones((1, 3), dtype=bool)
    reference, current = (shares(np.array([n], dtype=float), used) for n in ([500, 500, 0], [0, 500, 500]))
    assert psi_of(current, reference, used)[0] == pytest.approx(6.898, abs=5e-4)


def test_a_rare_new_bin_is_no_change() -> None:
    reference = reference_of(grid_counts(zip(BINS, [9_990, 10, 0], strict=True)))
    found = look_at(reference, grid_counts(zip(BINS, [9_980, 10, 10], strict=True)))
    assert found.status[0] == UNDEFINED
    assert not found.alarm[0]
    # Neither does it alarm where the bins are kept apart, as in a reference that another fit made.
    kept = PsiReference([ReferenceGroup(None, None, (150, 250, 401), (9_990.0, 10.0, 0.0), 1.0)], 1.0)
    found = look_at(kept, grid_counts(zip(BINS, [9_980, 10, 10], strict=True)))
    assert found.status[0] == KNOWN
    assert found.psi[0] < 0.01
    assert not found.alarm[0]


@given(
    st.lists(st.integers(0, 2_000), min_size=3, max_size=3).filter(any),
    st.lists(st.lists(st.integers(0, 2_000), min_size=3, max_size=3), min_size=1, max_size=6),
)
@settings(max_examples=60)
def test_finite_and_the_same_however_the_window_got_there(fit: list[int], panes: list[list[int]]) -> None:
    reference = reference_of(grid_counts(zip(BINS, fit, strict=True)))
    window = PsiWindow(2, (), lambda hashes: dict.fromkeys(hashes, ()))
    window.use(reference)
    for pane, rows in enumerate(panes):
        window.push(pane, np.zeros(3, np.uint64), np.array(BINS, np.uint16), np.array(rows, np.int64))
    counts = window.counts
    assert counts is not None
    incremental = look(reference, counts, 0.1, 1e-4)
    in_window = np.sum(panes[-2:], axis=0)
    assert in_window.sum() == counts.sum()
    at_once = look_at(reference, grid_counts(zip(BINS, in_window.tolist(), strict=True)))
    assert incremental.psi.tobytes() == at_once.psi.tobytes()
    assert incremental.alarm.tolist() == at_once.alarm.tolist()
    assert np.isfinite(incremental.psi[0]) or incremental.status[0] != KNOWN


def test_no_bin_of_the_grid_is_left_out() -> None:
    reference = reference_of(np.ones(N_BINS))
    assert look_at(reference, np.ones(N_BINS)).rows[0] == N_BINS
