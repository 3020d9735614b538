"""Rows sorted on disk."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.backtest.files import feed_order
from stream_calib.backtest.files.feed_order import TimeOrder
from stream_calib.errors import HistoryError

ROW = np.dtype([("time_ms", "<i8"), ("number", "<u4")])


def sorted_on_disk(chunks: list[list[int]]) -> list[np.ndarray]:
    order, number = TimeOrder(ROW), 0
    for times in chunks:
        rows = np.zeros(len(times), dtype=ROW)
        rows["time_ms"], rows["number"] = times, np.arange(number, number + len(times))
        number += len(times)
        order.add(rows)
    pieces = [piece.copy() for piece in order.pieces()]
    order.close()
    return pieces


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 12) | st.just(2**62), max_size=9), max_size=9),
    st.integers(1, 20),
    st.integers(1, 6),
)
def test_every_row_comes_once_and_in_order(chunks: list[list[int]], run_rows: int, piece_rows: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feed_order, "_RUN_ROWS", run_rows)
        patch.setattr(feed_order, "_PIECE_ROWS", piece_rows)
        patch.setattr(feed_order, "_LEAST_PIECE_ROWS", 1)
        pieces = sorted_on_disk(chunks)
        again = sorted_on_disk(chunks)

    rows = np.concatenate([*pieces, np.zeros(0, dtype=ROW)])
    given_times = [time for times in chunks for time in times]
    assert rows["time_ms"].tolist() == sorted(given_times)
    assert sorted(rows["number"].tolist()) == list(range(len(given_times)))
    assert [given_times[i] for i in rows["number"].tolist()] == rows["time_ms"].tolist()
    assert all(map(len, pieces))
    assert [piece.tobytes() for piece in pieces] == [piece.tobytes() for piece in again]


def test_memory_holds_a_piece_of_each_run_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_order, "_RUN_ROWS", 1_000)
    monkeypatch.setattr(feed_order, "_PIECE_ROWS", 50)
    monkeypatch.setattr(feed_order, "_LEAST_PIECE_ROWS", 50)
    times = np.random.default_rng(3).permutation(10_000)

    pieces = sorted_on_disk([chunk.tolist() for chunk in np.split(times, 100)])

    assert max(map(len, pieces)) <= 10 * 50
    assert np.concatenate(pieces)["time_ms"].tolist() == list(range(10_000))


def test_rows_in_order_are_one_run_whatever_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_order, "_RUN_ROWS", 100)
    monkeypatch.setattr(feed_order, "_PIECE_ROWS", 40)
    monkeypatch.setattr(feed_order, "_LEAST_PIECE_ROWS", 40)

    pieces = sorted_on_disk([list(range(start, start + 100)) for start in range(0, 1_000, 100)])

    assert [len(piece) for piece in pieces] == [40] * 25  # of several runs they would be of other lengths


def test_a_full_disk_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.TemporaryFile", lambda prefix: open("/dev/full", "wb"))  # noqa: SIM115
    order = TimeOrder(ROW)
    order.add(np.zeros(3, dtype=ROW))
    with pytest.raises(HistoryError, match="a temporary file cannot be written: No space left on device; make room"):
        list(order.pieces())
    order.close()
