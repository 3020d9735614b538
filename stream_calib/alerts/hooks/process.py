"""A program that is given a time limit: run in a process group of its own, which is gone when this returns."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import IO, NamedTuple

_LOOK_S = 0.05
"""How often it is looked whether the program has ended: what it started may hold its output open."""
_CHUNK = 1 << 16


class Ended(NamedTuple):
    status: int | None
    """Exit status, negative for a signal; None where the time limit ended it."""
    output: bytes
    """The beginning of what it wrote."""


def run(
    command: Sequence[str], given: bytes, environment: Mapping[str, str], timeout_s: float, *, max_output_bytes: int
) -> Ended:
    """Runs the program with `given` on its input, and kills all that is left of its process group at the end, whether
    the program has ended or its time was over.

    What the program puts into another session (a daemon) is not found. Raises OSError where it cannot be started.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(environment),
        start_new_session=True,
        bufsize=0,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with process.stdin, process.stdout:
            output, in_time = _attend(process, process.stdin, process.stdout, given, timeout_s, max_output_bytes)
    finally:
        # Before the program is reaped: until then its number cannot be that of another group.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return Ended(process.returncode if in_time else None, output)


def _attend(
    process: subprocess.Popen[bytes],
    stdin: IO[bytes],
    stdout: IO[bytes],
    given: bytes,
    timeout_s: float,
    max_output_bytes: int,
) -> tuple[bytes, bool]:
    """Feeds and reads the program until it has ended; what it wrote, and whether it ended in time."""
    end, output, left = time.monotonic() + timeout_s, bytearray(), memoryview(given)
    for pipe in (stdin, stdout):
        os.set_blocking(pipe.fileno(), False)
    with selectors.DefaultSelector() as selector:
        selector.register(stdin, selectors.EVENT_WRITE)
        selector.register(stdout, selectors.EVENT_READ)
        while True:
            has_ended, is_over = _has_ended(process), time.monotonic() >= end
            for key, _ in selector.select(0 if has_ended or is_over else min(_LOOK_S, end - time.monotonic())):
                if key.fileobj is stdout:
                    read = os.read(stdout.fileno(), _CHUNK)
                    output += read[: max_output_bytes - len(output)]
                    if not read:
                        selector.unregister(stdout)
                elif not (left := _written(stdin, left)):
                    selector.unregister(stdin)
                    stdin.close()
            if has_ended or is_over:
                return bytes(output), has_ended


def _written(stdin: IO[bytes], left: memoryview) -> memoryview:
    """What is left to be written; nothing, where the program does not read any more."""
    try:
        return left[os.write(stdin.fileno(), left[:_CHUNK]) :] if left else left
    except BrokenPipeError:
        return left[:0]


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Without reaping it."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
