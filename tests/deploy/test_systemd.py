"""The unit, by systemd's own check."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from workers import run

pytestmark = pytest.mark.deploy

UNIT = Path(__file__).parents[2] / "deploy/systemd/stream-calib@.service"
_ROLE = "stream-calib@calibrate.service"


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a command that there is on this machine."""
    text = UNIT.read_text(encoding="utf-8").replace("/opt/stream-calib/bin/stream-calib", "/bin/true")
    for name in (UNIT.name, _ROLE):
        (tmp_path / name).write_text(text)
    return tmp_path / _ROLE


def _analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    assert shutil.which("systemd-analyze"), "systemd-analyze: not found; install systemd"
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True)


def test_systemd_finds_no_fault(unit: Path) -> None:
    done = _analyze("verify", str(unit))
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_is_confined(unit: Path) -> None:
    done = _analyze("security", "--offline=true", "--threshold=20", str(unit))
    assert done.returncode == 0, done.stdout[-500:]


def test_systemd_waits_longer_than_a_role_takes_to_end() -> None:
    found = re.search(r"^TimeoutStopSec=(\d+)s$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)
    assert found
    assert int(found[1]) > run._STOP_WITHIN_S
