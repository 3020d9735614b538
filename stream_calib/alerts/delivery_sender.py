"""A receiver on a thread of its own: whatever it does, or however long it takes, nobody else waits for it.

One thread a receiver: there are few (`alerts.hooks` has at most 32), they mostly wait for a network, and one that hangs
beyond all limits costs its own thread only.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from stream_calib.alerts.hooks.port import Delivery

_LOG = logging.getLogger(__name__)

Load = TypeVar("Load")


class Sender(Generic[Load]):
    """One at a time: `send`, then `result` until it is there. Of one thread, but for the call itself."""

    def __init__(
        self, name: str, call: Callable[[Load], Delivery], close: Callable[[], None], done: threading.Event
    ) -> None:
        """`call`: what sends; `close`: called in the same thread, at the end. `done`: set when there is a result."""
        self._name, self._call, self._close, self._done = name, call, close, done
        self._loads: SimpleQueue[Load | None] = SimpleQueue()
        self._results: SimpleQueue[Delivery] = SimpleQueue()
        self.is_busy = False
        """Whether something was sent of which the result was not taken yet."""
        self._thread = threading.Thread(target=self._run, name=f"alert hook {name}", daemon=True)
        self._thread.start()

    def send(self, load: Load) -> None:
        """Only while it is not busy."""
        self.is_busy = True
        self._loads.put(load)

    def result(self, within_s: float = 0.0) -> Delivery | None:
        """What became of what was sent last; None where that is not known yet."""
        try:
            found = self._results.get(block=within_s > 0, timeout=within_s or None)
        except Empty:
            return None
        self.is_busy = False
        return found

    def close(self) -> None:
        """Ends the thread once its call returns; does not wait for that."""
        self._loads.put(None)

    def _run(self) -> None:
        while (load := self._loads.get()) is not None:
            began_s = time.monotonic()
            try:
                result = self._call(load)
            except Exception as error:
                # A fault of ours, not of the receiver. Its message may hold an address with a key: only its type and
                # its places are told.
                places = "".join(traceback.format_tb(error.__traceback__))
                _LOG.error(
                    "hook %s failed in a way that nobody foresaw: %s\n%s", self._name, type(error).__name__, places
                )
                result = Delivery("retry", f"{type(error).__name__}, a fault in stream-calib; its log says where")
            self._results.put(result)
            self._done.set()
            _LOG.debug("hook %s: %s after %.3f s", self._name, result.outcome, time.monotonic() - began_s)
        self._close()
