"""Processes end in good order when they are asked to, at once when asked twice, and with the one that started them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.expectation import check_one_output_each
from tests.integration.findings import find
from tests.integration.harness import Deployment, deployment
from tests.integration.stream import EventDay, as_written

pytestmark = pytest.mark.services


def test_each_role_ends_in_good_order(month: list[EventDay], tmp_path: Path) -> None:
    """In the middle of work; what it held is free at once, and its status is gone."""
    with deployment(tmp_path) as deployed:
        running = deployed.start_all("calibrate", "monitor", "refit", "alert")
        _write(deployed, month[:12])
        deployed.until(lambda: deployed.committed("monitor", "labels") > 1_000, "work to be under way")
        for role, process in running.items():
            asked = time.monotonic()
            assert process.terminate() == 0
            assert time.monotonic() - asked < 5
            assert deployed.statuses(role) == []
            assert "Traceback" not in process.output.read_text()
        assert _leases(deployed) == []
        # Others go on where they stopped, without waiting for any session to end.
        deployed.start_all(*running)
        deployed.until_served(5)
        found = find(deployed)
    check_one_output_each(found)


def _leases(deployed: Deployment) -> list[bytes]:
    return [*deployed.state.client.scan_iter("sc:*lease:*")]


def _write(deployed: Deployment, days: list[EventDay]) -> None:
    for day, records in zip(days, as_written(days), strict=True):
        deployed.log.produce(records + deployed.clocks(day.end_ms))


def test_several_roles_in_one_process_end_together(tmp_path: Path) -> None:
    with deployment(tmp_path) as deployed:
        one = deployed.start("calibrate", "monitor", "refit", "alert")
        roles = ("calibrate", "monitor", "refit", "alert")
        deployed.until(lambda: all(deployed.statuses(role) for role in roles), "all roles to be there")
        assert one.terminate() == 0
        assert not any(deployed.statuses(role) for role in roles)


def test_roles_end_in_good_order_while_the_server_is_away(tmp_path: Path) -> None:
    with deployment(tmp_path) as deployed:
        running = deployed.start_all("calibrate", "monitor", "refit", "alert").values()
        deployed.server.kill()
        assert [process.terminate() for process in running] == [0] * len(running)
        assert not any("Traceback" in process.output.read_text() for process in running)
        deployed.server.start()


def test_the_second_signal_ends_at_once(tmp_path: Path) -> None:
    """While the server hangs, an orderly end would wait for it."""
    with deployment(tmp_path) as deployed:
        one = deployed.start_all("monitor")["monitor"]
        os.kill(deployed.server.pid, signal.SIGSTOP)
        try:
            one.expected = False
            one.process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                one.process.wait(0.5)
            one.process.send_signal(signal.SIGTERM)
            assert one.process.wait(2) == 128 + signal.SIGTERM
        finally:
            os.kill(deployed.server.pid, signal.SIGCONT)


def test_a_role_that_hangs_past_the_bound_ends_the_process_with_the_place_in_its_log(tmp_path: Path) -> None:
    with deployment(tmp_path) as deployed:
        one = deployed.start("monitor", "refit", module="tests.integration.impatient")
        deployed.until(lambda: all(deployed.statuses(role) for role in one.roles), "both roles to be there")
        os.kill(deployed.server.pid, signal.SIGSTOP)
        try:
            asked = time.monotonic()
            assert one.terminate() == 1
            assert 1.9 < time.monotonic() - asked < 6
        finally:
            os.kill(deployed.server.pid, signal.SIGCONT)
        said = one.output.read_text()
        for role in one.roles:
            assert re.search(rf"{role} did not end within 2 s; .* It is in workers/role\.py", said)
        assert "stopped" not in said.split()


def test_a_process_ends_in_good_order_while_it_waits_for_a_log(tmp_path: Path) -> None:
    """It would give up by itself after ten seconds, with another code."""
    with deployment(tmp_path) as deployed:
        deployed.server.kill()
        one = deployed.start("calibrate", "monitor")
        deployed.until(lambda: "workers.run: waiting for the log" in one.output.read_text(), "it to wait")
        asked = time.monotonic()
        assert one.terminate() == 0
        assert time.monotonic() - asked < 3
        assert one.last_words().endswith("workers.run: stopped")


def test_a_process_whose_log_does_not_come_up_ends_with_the_reason(tmp_path: Path) -> None:
    with deployment(tmp_path) as deployed:
        deployed.server.kill()
        one = deployed.start("calibrate")
        one.expected = False
        assert one.process.wait(40) == 1
        assert "Traceback" not in one.last_words()
        assert "no answer from the Redis-compatible server" in one.last_words()


def test_a_process_ends_in_good_order_while_it_opens_its_roles(tmp_path: Path) -> None:
    """The log is there, the state is not."""
    with deployment(tmp_path, own_state=True) as deployed:
        deployed.state_server.kill()
        one = deployed.start("calibrate", "monitor", "refit", "alert")
        deployed.until(lambda: all(f"{r} pauses" in one.output.read_text() for r in one.roles), "all to wait")
        assert one.terminate() == 0
        assert "Traceback" not in one.output.read_text()


def _demo(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "workers.cli", "demo", "--days", "40", "--output", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)


def _descendants(pid: int) -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found |= {int(child)} | _descendants(int(child))
    return found


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_the_demo_leaves_nobody_behind(tmp_path: Path, how: signal.Signals) -> None:
    """Also not who was still about to start."""
    demo = _demo(tmp_path / "demo")
    try:
        _until(lambda: (tmp_path / "demo" / "logs" / "alert.log").exists(), "the roles to be started")
        left = _descendants(demo.pid)
        assert len(left) >= 5
        os.kill(demo.pid, how)
        assert demo.wait(30) == (-how if how == signal.SIGKILL else 1)
        _until(lambda: not any(_alive(pid) for pid in left), "its processes to end")
    finally:
        if demo.poll() is None:
            demo.kill()
        demo.communicate()


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _until(condition: object, what: str, deadline_s: float = 30.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.02)


def test_the_demo_writes_its_figures(tmp_path: Path) -> None:
    """The shortest one; the figures add up to what the files hold."""
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "workers.cli", "demo", "--days", "20", "--output", str(tmp_path / "out")]
    done = subprocess.run([*command, "--json", str(figures)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(figures.read_text())
    assert set(told) == {
        "scores",
        "duplicate_scores",
        "labels",
        "unlabelled",
        "raw",
        "calibrated",
        "refits",
        "alerts",
        "seconds",
    }
    assert told["labels"]["joined"] + told["unlabelled"] == told["scores"] - told["duplicate_scores"]
    assert told["refits"]["requested"] >= told["refits"]["published"] + told["refits"]["refused"]
    assert (tmp_path / "out" / "report.html").read_text().startswith("<!")
