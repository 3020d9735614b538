"""What is to be written is refused before the work where it could not be written after it, and nothing is touched."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from stream_calib.errors import BacktestError
from workers.backtest_outputs import write_file
from workers.backtest_places import Place, check_places, make_folder

UNCHANGEABLE = Path("/proc/self")
"""A folder with files that can be written, in which nobody makes one, root neither."""


def refusal(*places: Place) -> str:
    with pytest.raises(BacktestError) as refused:
        check_places(places)
    return str(refused.value)


def test_a_file_that_is_replaced_needs_a_folder_where_one_can_be_made(tmp_path: Path) -> None:
    adjusted = UNCHANGEABLE / "oom_score_adj"
    check_places([Place("--html", adjusted)])
    said = refusal(Place("--save-cells", adjusted, is_replaced=True))
    assert said.startswith(f"--save-cells {adjusted}: cannot be written:")
    (tmp_path / "year.cells").write_bytes(b"as it was")
    check_places([Place("--save-cells", tmp_path / "year.cells", is_replaced=True)])
    assert (tmp_path / "year.cells").read_bytes() == b"as it was"
    assert len(list(tmp_path.iterdir())) == 1


def test_no_file_is_put_in_place_of_a_device_or_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    for path in (Path("/dev/null"), tmp_path / "pipe", tmp_path / "link"):
        check_places([Place("--json", path)])
        said = refusal(Place("--save-cells", path, is_replaced=True))
        assert said == f"--save-cells {path}: is a device or a pipe, in whose place no file is put; name a file"
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_link_to_nowhere_is_judged_by_where_it_leads(tmp_path: Path, is_replaced: bool) -> None:
    link = tmp_path / "link"
    link.symlink_to(UNCHANGEABLE / "none" / "report.html")
    assert refusal(Place("--html", link, is_replaced=is_replaced)).startswith(f"--html {link}: cannot be written:")
    link.unlink()
    (tmp_path / "file").touch()
    link.symlink_to(tmp_path / "file" / "report.html")
    assert f"--html {link}: {tmp_path}/file is a file" in refusal(Place("--html", link, is_replaced=is_replaced))


def test_what_a_link_leads_to_is_made_where_it_is_not_there(tmp_path: Path) -> None:
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.symlink_to(tmp_path / "a" / "report.html")
    folder.symlink_to(tmp_path / "b" / "c")
    check_places([Place("--html", file), Place("--resume-folder", folder, is_folder=True)])
    write_file(file, b"report")
    make_folder(folder)
    assert (tmp_path / "a" / "report.html").read_bytes() == b"report"
    assert (tmp_path / "b" / "c").is_dir()


def test_links_that_lead_to_each_other_are_refused(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.symlink_to(other)
    other.symlink_to(one)
    for path in (one, one / "report.html"):
        assert refusal(Place("--html", path)) == f"--html {path}: is a link to itself; name another place"


def test_two_names_of_one_place_are_told(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    said = refusal(Place("--html", tmp_path / "file"), Place("--json", tmp_path / "link"))
    assert said.endswith("are the same; give each a name of its own")


def test_what_is_read_is_not_overwritten(tmp_path: Path) -> None:
    scores, other = tmp_path / "scores.csv", tmp_path / "other.csv"
    scores.write_text("a\n")
    other.symlink_to(scores)
    for path in (scores, other):
        with pytest.raises(BacktestError, match=r"^--html .*: is read, and would be overwritten; give it another name"):
            check_places([Place("--html", path)], [scores])
    assert scores.read_text() == "a\n"
    check_places([Place("--html", tmp_path / "r.html")], [scores])
