"""Commands: what they are given, what becomes of it, and that nothing of them is left."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from stream_calib.alerts.hooks.command import CommandHook
from stream_calib.alerts.hooks.document import message_document
from stream_calib.alerts.hooks.port import Delivery
from stream_calib.alerts.hooks.process import run
from tests.hook_messages import alert, hook, message

RUNBOOK = "docs/operations.md"
FOREVER = "while :; do sleep 1; done"
PATIENCE_S = (0.3, 3, 30)
"""Time limits, of which the first does where the machine is not busy."""


def send(script: str, *arguments: str, timeout: str = "30s", **evidence: Any) -> Delivery:
    command = ["sh", "-c", script, "sh", *arguments]
    opened = CommandHook(hook("command", command=command, timeout=timeout), RUNBOOK)
    return opened.send(message(alert(evidence=evidence)))


def is_there(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    # One that has ended, and that nobody has waited for yet, is gone too.
    return ") Z " not in state


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 10
    while is_there(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"


def test_the_message_is_on_its_input(tmp_path: Path) -> None:
    given = message()
    opened = CommandHook(hook("command", command=["sh", "-c", 'cat > "$0"', str(tmp_path / "got")]), RUNBOOK)
    assert opened.send(given) == Delivery("delivered", "sh ended with status 0")
    assert (tmp_path / "got").read_bytes() == message_document(given, RUNBOOK)


def test_it_does_not_know_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_CALIB_REDIS_URL", "redis://:secret@host")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    assert send('env > "$1"', str(tmp_path / "got")).outcome == "delivered"
    known: dict[str, str] = dict(line.partition("=")[::2] for line in (tmp_path / "got").read_text().splitlines())
    assert known["TZ"] == "Europe/Berlin"
    of_the_shell = {"PWD", "OLDPWD", "SHLVL", "_"}
    assert set(known) - of_the_shell <= {"PATH", "HOME", "LANG", "LC_ALL", "TZ"}


def test_a_status_that_is_not_0_is_tried_again() -> None:
    delivery = send("echo first line; echo to stderr >&2; exit 3")
    assert delivery == Delivery("retry", "sh ended with status 3: first line to stderr")
    assert send("kill -9 $$") == Delivery("retry", "sh ended with status -9")


def test_a_program_that_is_not_there() -> None:
    opened = CommandHook(hook("command", command=["/nowhere/at-all"]), RUNBOOK)
    assert opened.send(message()) == Delivery("retry", "/nowhere/at-all: No such file or directory")


def test_one_that_hangs_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    script = f"trap '' TERM; ({FOREVER}) & echo $$ $! > \"$1\"; {FOREVER}"
    for timeout_s in PATIENCE_S:
        delivery = send(script, str(file), timeout=f"{timeout_s}s")
        assert delivery == Delivery("retry", f"sh did not end within {timeout_s} s")
        if file.exists():
            break
    pids = [int(pid) for pid in file.read_text().split()]
    assert len(pids) == 2
    for pid in pids:
        wait_until_gone(pid)


def test_what_it_leaves_running_does_not_hold_it_up(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    delivery = send(f'({FOREVER}) & echo $! > "$1"; echo said; exit 1', str(file))
    assert delivery == Delivery("retry", "sh ended with status 1: said")
    wait_until_gone(int(file.read_text()))


def test_one_that_does_not_read_a_large_message_is_fine() -> None:
    assert send("exit 0", large="x" * 2_000_000).outcome == "delivered"


def test_a_large_message_comes_whole() -> None:
    ended = run(["wc", "-c"], b"x" * 3_000_000, {"PATH": os.environ["PATH"]}, 30, max_output_bytes=100)
    assert (ended.status, ended.output.strip()) == (0, b"3000000")


def test_a_flood_of_output_is_not_kept() -> None:
    for timeout_s in PATIENCE_S:
        ended = run(["yes"], b"", {"PATH": os.environ["PATH"]}, timeout_s, max_output_bytes=10)
        assert ended.status is None
        if ended.output:
            break
    assert ended.output == b"y\n" * 5
    assert len(send("yes; exit 1", timeout="300ms").detail) < 300


def test_no_file_stays_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for script in ("exit 0", "exit 1", "exec >&- 2>&- <&-; exit 0"):
        send(script)
    send(FOREVER, timeout="100ms")
    assert len(os.listdir("/proc/self/fd")) == before
