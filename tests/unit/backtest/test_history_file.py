"""A history in a file: all of it comes back, and damage is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_calib.backtest.history_file import load_history, save_history
from stream_calib.backtest.what_if.faults import parse_scenario
from stream_calib.backtest.what_if.injection import inject_all
from stream_calib.errors import HistoryError
from tests.unit.backtest.made_histories import configuration, drawn_history

HISTORY = inject_all(
    drawn_history(30, 40, 1, open_panes=5), parse_scenario("delay by=3h from=2013-06-01T04:00", configuration())
).history


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "cells.sch"
    save_history(HISTORY, path)
    return path


def test_all_of_a_history_comes_back_and_equal_histories_are_equal_bytes(saved: Path) -> None:
    assert load_history(saved) == HISTORY
    again = saved.with_name("again.sch")
    save_history(load_history(saved), again)
    assert again.read_bytes() == saved.read_bytes()
    assert sorted(path.name for path in saved.parent.iterdir()) == ["again.sch", "cells.sch"]


def test_a_link_stays_one_and_its_file_is_replaced(saved: Path, tmp_path: Path) -> None:
    for target in (saved, tmp_path / "not" / "there.sch"):
        link = tmp_path / f"link-{target.name}"
        link.symlink_to(target)
        save_history(HISTORY, link)
        assert link.is_symlink()
        assert load_history(target) == HISTORY


def test_every_damaged_byte_is_told(saved: Path) -> None:
    whole = saved.read_bytes()
    step = max(1, len(whole) // 150)
    for place in range(0, len(whole), step):
        saved.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        with pytest.raises(HistoryError, match=r"cells\.sch: "):
            load_history(saved)


def test_every_cut_is_told(saved: Path) -> None:
    whole = saved.read_bytes()
    for length in [*range(0, len(whole), len(whole) // 100), len(whole) - 1]:
        saved.write_bytes(whole[:length])
        with pytest.raises(HistoryError, match=r"cells\.sch: "):
            load_history(saved)
    saved.write_bytes(whole + b"x")
    with pytest.raises(HistoryError, match="there is something behind the end: the file is damaged"):
        load_history(saved)


def test_another_file_or_format_is_refused(saved: Path) -> None:
    other = saved.with_name("other")
    other.write_text("event_id,score\n")
    with pytest.raises(HistoryError, match="is no history of cells; `stream-calib backtest --save-cells`"):
        load_history(other)
    saved.write_bytes(saved.read_bytes().replace(b"history 1\n", b"history 9\n", 1))
    with pytest.raises(HistoryError, match="is of format 9, this version reads format 1: make it again"):
        load_history(saved)
    with pytest.raises(HistoryError, match=r"nowhere: cannot be read: No such file"):
        load_history(saved.with_name("nowhere"))
    with pytest.raises(HistoryError, match="cannot be written"):
        save_history(HISTORY, saved / "below")
