"""Orderly ends: the first SIGTERM or Ctrl-C asks for one, the second ends the process at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType


@contextmanager
def stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """While the block runs, the first signal sets `stop`. Only in the main thread.

    Nothing is raised in the block: an exception out of a handler is lost where Python has nobody to give it to, such as
    in a finalizer. The handler runs in the main thread, which may hold the event's lock at that moment, about to wait:
    setting the event there would wait for ever. So another thread sets it; a SimpleQueue takes a signal at any moment.
    """
    asked = SimpleQueue[int | None]()
    been_asked = False

    def pass_on() -> None:
        if asked.get() is not None:
            stop.set()

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal been_asked
        if been_asked or stop.is_set():
            # Nothing that matters is in memory, so leaving at once is safe.
            os._exit(128 + number)
        been_asked = True
        asked.put(number)

    threading.Thread(target=pass_on, name="signals", daemon=True).start()
    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        asked.put(None)
