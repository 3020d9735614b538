"""A process that is asked to end at the worst moment: while its main thread is just about to wait for that."""

from __future__ import annotations

import subprocess
import sys

_AT_THE_WORST_MOMENT = """
import os, signal, threading
from workers.stopping import stopped_by_signals
stop = threading.Event()
with stopped_by_signals(stop), stop._cond:  # as Event.wait holds it for a moment
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(1_000):
        pass  # the handler runs here, in this thread
print(stop.wait(30))
"""


def test_a_signal_that_comes_while_the_main_thread_begins_to_wait_is_heard() -> None:
    command = [sys.executable, "-c", _AT_THE_WORST_MOMENT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
