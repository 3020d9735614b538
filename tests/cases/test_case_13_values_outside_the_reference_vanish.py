"""Histograms over the reference's own edges dropped what lay outside of them: a total change of the traffic had a PSI
of 0, because the half of the rows that was new was not counted.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.drift.psi import KNOWN
from tests.cases.drift import counts_of, look_at, reference_of

FIT = np.linspace(0.2, 0.8, 1_000)


def test_rows_beyond_the_reference_are_counted_in_its_outer_bins() -> None:
    current = np.concatenate([np.linspace(0.2, 0.8, 500), np.full(500, 0.95)])
    found = look_at(reference_of(counts_of(FIT)), counts_of(current))
    assert found.rows[0] == 1_000
    # 1.08 with exact tenths of the reference; its bins are whole grid bins, so these are only about tenths.
    assert found.psi[0] == pytest.approx(1.08, abs=0.06)
    assert found.alarm[0]


@pytest.mark.parametrize("outside", [0.0, 1e-300, 0.05, 0.95, 1 - 1e-16, 1.0])
def test_on_both_sides_to_the_very_ends(outside: float) -> None:
    found = look_at(reference_of(counts_of(FIT)), counts_of(np.concatenate([FIT[::2], np.full(500, outside)])))
    assert found.rows[0] == 1_000
    assert found.alarm[0]


@given(
    st.lists(st.floats(0, 1), min_size=20, max_size=60),
    st.lists(st.floats(0, 1), min_size=1, max_size=40),
    st.integers(2, 12),
)
@settings(max_examples=60)
def test_each_row_is_in_one_bin(fit: list[float], current: list[float], bins: int) -> None:
    found = look_at(reference_of(counts_of(np.array(fit)), bins), counts_of(np.array(current)))
    assert found.rows[0] == len(current)
    assert found.status[0] != KNOWN or np.isfinite(found.psi[0])
