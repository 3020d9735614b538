"""Processes that a command starts for work of its own: told over a pipe, and gone when the command is.

Python objects go over the pipe as multiprocessing encodes them (pickle): only ever between a command and a process that
it has started itself, of the same program and user, never to or from a file or a topic.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from stream_calib.errors import BacktestError

_END_S = 5.0


class ChildProcess:
    """Ctrl-C is not for it. Not forked: the caller may have threads (of a progress bar, of an engine) that a fork would
    leave half-way.

    What it is to do is sent over the pipe. What multiprocessing gives to a new process itself is written to another
    one, whose both ends the caller holds, so a process that dies meanwhile would be waited for.
    """

    def __init__(self, work: Callable[[Connection], None]) -> None:
        """Runs ``work(pipe)`` once `start` is called, with the other end of `pipe`."""
        context = get_context("spawn")
        self.pipe, self._its = context.Pipe()
        self._process: SpawnProcess = context.Process(target=work, args=(self._its,), daemon=True)

    def start(self) -> None:
        """Raises BacktestError where there can be no more processes; the pipe is at its end then."""
        # An interruption is the caller's, who ends the process; by the mask it is so from its first moment on.
        resource_tracker.ensure_running()  # which it would start then, taking the mask off behind that
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        except OSError as error:
            raise BacktestError(
                f"no process can be started ({error}); is there memory, and may this user have more processes?"
            ) from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            self._its.close()

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def terminate(self) -> None:
        """Asks it to end, without waiting."""
        if self._process.pid is not None:
            self._process.terminate()

    def end_text(self) -> str:
        """How it has ended, to be called when the pipe is at its end: "ended with exit code 1"."""
        self._process.join(_END_S)
        code = self._process.exitcode
        if code is None or code >= 0:
            return f"ended with exit code {code}"
        try:
            return f"was ended by {signal.Signals(-code).name}"
        except ValueError:  # a real-time signal has no name
            return f"was ended by signal {-code}"

    def end(self) -> None:
        """Waits for its end, and makes one where it does not come."""
        if self._process.pid is None:
            return
        self._process.join(_END_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
