"""One role's loop: steps until it is asked to stop, waits while there is nothing to do, goes on when a server is
away."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod

from stream_calib.errors import (
    PositionLostError,
    StateUnavailableError,
    StreamCalibError,
    TopicRecreatedError,
    TransportError,
)

_LOG = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 5.0


class Role(ABC):
    """What a role does. Not thread-safe: one thread calls it, from `open` to `close`."""

    name: str

    @abstractmethod
    def open(self) -> None:
        """Connects. May raise what `step` may raise; it is then called again."""

    @abstractmethod
    def step(self) -> bool:
        """A bounded piece of work; False when there was nothing to do. Blocks for at most a fraction of a second.

        StateUnavailableError and TransportError: the step is tried again after a pause. Anything else ends the process,
        and so do TopicRecreatedError and PositionLostError, which no waiting mends.
        """

    @abstractmethod
    def close(self) -> None:
        """Gives up leases and connections. Called once, also after an error."""


class RoleLoop(threading.Thread):
    """Runs a role in a thread of its own until `stop` is set or it fails."""

    def __init__(self, role: Role, stop: threading.Event, idle_wait_s: float) -> None:
        super().__init__(name=role.name, daemon=True)
        self.role = role
        self.error: BaseException | None = None
        self._stop_asked = stop
        self._idle_wait_s = idle_wait_s

    def run(self) -> None:
        try:
            self._loop()
        except Exception as error:
            # Kept for the main thread, which ends the process with it; nothing is swallowed.
            self.error = error
            # What we raise on purpose says what to do; where it was raised is for our own faults.
            _LOG.critical("%s ended: %s", self.role.name, error, exc_info=not isinstance(error, StreamCalibError))
        finally:
            self._stop_asked.set()
            self._close()

    def _close(self) -> None:
        try:
            self.role.close()
        except (StateUnavailableError, TransportError) as error:
            # Giving leases up only saves the others the wait for their end.
            _LOG.warning("%s ends without giving up what it held: %s", self.role.name, error)

    def _loop(self) -> None:
        opened, pause, tried_again_at = False, _FIRST_PAUSE_S, time.monotonic()
        while not self._stop_asked.is_set():
            try:
                if not opened:
                    self.role.open()
                    opened = True
                if not self.role.step():
                    self._stop_asked.wait(self._idle_wait_s)
            except (TopicRecreatedError, PositionLostError):
                raise  # going on would count other records, or miss some; somebody has to decide
            except (StateUnavailableError, TransportError) as error:
                # A step that went well says little: every other one may need the server that is away.
                if time.monotonic() - tried_again_at > pause:
                    pause = _FIRST_PAUSE_S
                _LOG.warning("%s pauses for %.2g s: %s", self.role.name, pause, error)
                self._stop_asked.wait(pause)
                pause, tried_again_at = min(2 * pause, _LONGEST_PAUSE_S), time.monotonic()


def wall_clock_ms() -> int:
    """Wall time in epoch milliseconds."""
    return time.time_ns() // 1_000_000
