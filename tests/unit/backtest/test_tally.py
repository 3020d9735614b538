"""Numbers that come in pieces are counted as if they had come at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.backtest.tables import tally
from stream_calib.backtest.tables.tally import Tally


@settings(max_examples=50, deadline=None)
@given(pieces=st.lists(st.lists(st.integers(-3, 9), max_size=8), max_size=8), least=st.integers(1, 20))
def test_counts_are_those_of_all_pieces_together(pieces: list[list[int]], least: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tally, "_LEAST_WAITING", least)
        counting = Tally()
        for piece in pieces:
            counting.add(np.array(piece, dtype=np.int64))
        found = counting.counted()
    key, n = np.unique(np.array([x for piece in pieces for x in piece], dtype=np.int64), return_counts=True)
    assert found.key.tolist() == key.tolist()
    assert found.n.tolist() == n.tolist()
