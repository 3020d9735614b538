"""One role's loop: steps until it is asked to stop, waits while there is nothing to do, goes on when a server is
away."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from starlette.routing import BaseRoute

from stream_calib import metrics
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
_TELL_EVERY_S = 60.0


class Role(ABC):
    """What a role does. Not thread-safe: one thread calls it, from `open` to `close`."""

    name: str
    longest_step_s: ClassVar[float] = 0.0
    """A step may take so long without counting as hung, where that is more than `http.hung_after`."""

    @abstractmethod
    def open(self) -> None:
        """Connects. May raise what `step` may raise; it is then called again."""

    @abstractmethod
    def step(self) -> bool:
        """A bounded piece of work; False when there was nothing to do. Blocks for at most a fraction of a second.

        StateUnavailableError and TransportError: the step is tried again after a pause. Anything else ends the process,
        and so do TopicRecreatedError and PositionLostError, which no waiting mends.
        """

    def ready(self) -> str | None:
        """Why the role cannot do its work yet; None where it can. Asked after each step that went well; cheap."""
        return None

    def routes(self) -> Sequence[BaseRoute]:
        """What the process's HTTP server serves for the role, from before `open` until after `close`."""
        return ()

    @abstractmethod
    def close(self) -> None:
        """Gives up leases and connections. Called once, also after an error."""


class RoleLoop(threading.Thread):
    """Runs a role in a thread of its own until `stop` is set or it fails."""

    def __init__(self, role: Role, stop: threading.Event, idle_wait_s: float) -> None:
        super().__init__(name=role.name, daemon=True)
        self.role = role
        self.error: BaseException | None = None
        self.turned_at_s = time.monotonic()
        """When the loop last came round, monotonic seconds."""
        self.not_ready: str | None = "starts"
        """Why the role is not ready; None while it is."""
        self._stop_asked = stop
        self._idle_wait_s = idle_wait_s
        self._pauses = Pauses(role.name)
        self._turn_timestamp = metrics.ROLE_TURN_TIMESTAMP.labels(role.name)
        self._ready = metrics.ROLE_READY.labels(role.name)

    def run(self) -> None:
        self._turned("starts")
        try:
            self._loop()
        except Exception as error:
            # Kept for the main thread, which ends the process with it; nothing is swallowed.
            self.error = error
            # What we raise on purpose says what to do; where it was raised is for our own faults.
            _LOG.critical("%s ended: %s", self.role.name, error, exc_info=not isinstance(error, StreamCalibError))
        finally:
            self._stop_asked.set()
            self._turned("ends")
            self._close()

    def _close(self) -> None:
        try:
            self.role.close()
        except StreamCalibError as error:
            # Giving leases up only saves the others the wait for their end.
            _LOG.warning("%s ends without giving up what it held: %s", self.role.name, error)

    def _loop(self) -> None:
        opened = False
        while not self._stop_asked.is_set():
            try:
                if not opened:
                    self.role.open()
                    opened = True
                worked = self.role.step()
                self._turned(self.role.ready())
                self._pauses.went_well()
                if not worked:
                    self._stop_asked.wait(self._idle_wait_s)
            except (TopicRecreatedError, PositionLostError):
                raise  # going on would count other records, or miss some; somebody has to decide
            except (StateUnavailableError, TransportError) as error:
                self._turned(f"waits: {error}")
                metrics.ROLE_PAUSES.labels(self.name, server_of(error)).inc()
                self._stop_asked.wait(self._pauses.next_s(error))
                self._pauses.ended()

    def _turned(self, not_ready: str | None) -> None:
        self.turned_at_s, self.not_ready = time.monotonic(), not_ready
        self._turn_timestamp.set_to_current_time()
        self._ready.set(not_ready is None)


class Pauses:
    """How long to wait for a server that is away, and how often to say so."""

    def __init__(self, name: str, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        """`name`: the role's."""
        self._name, self._monotonic_s = name, monotonic_s
        self._pause_s = _FIRST_PAUSE_S
        self._tried_again_s = self._away_since_s = monotonic_s()
        self._failures = 0
        self._told_s: dict[type[StreamCalibError], float] = {}

    def next_s(self, error: StateUnavailableError | TransportError) -> float:
        """The pause after this failure, in seconds: twice the last one, if that one did not help."""
        now = self._monotonic_s()
        if not self._failures:
            self._away_since_s = now
        self._failures += 1
        pause_s = self._pause_s
        self._tell(error, now, pause_s)
        self._pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return pause_s

    def ended(self) -> None:
        """The pause is over: what comes next is another try."""
        self._tried_again_s = self._monotonic_s()

    def went_well(self) -> None:
        """A step did. One that comes right after a pause says little: the next may need the server that is away."""
        if not self._failures:
            return
        now = self._monotonic_s()
        if now - self._tried_again_s > self._pause_s:
            _LOG.info("%s goes on, after %.0f s and %d tries", self._name, now - self._away_since_s, self._failures)
            self._pause_s, self._failures = _FIRST_PAUSE_S, 0
            self._told_s.clear()

    def _tell(self, error: StateUnavailableError | TransportError, now: float, pause_s: float) -> None:
        """The first of its kind at once, then one a minute: a server may be away for hours."""
        told_s = self._told_s.get(type(error))
        if told_s is None:
            _LOG.warning("%s pauses for %.2g s: %s", self._name, pause_s, error, extra={"server": server_of(error)})
        elif now - told_s >= _TELL_EVERY_S:
            away_s = now - self._away_since_s
            still = "%s pauses still, after %.0f s and %d tries: %s"
            _LOG.warning(still, self._name, away_s, self._failures, error, extra={"server": server_of(error)})
        else:
            return
        self._told_s[type(error)] = now


def server_of(error: StateUnavailableError | TransportError) -> str:
    """Which server is away, "state" or "log"."""
    return "state" if isinstance(error, StateUnavailableError) else "log"


def wall_clock_ms() -> int:
    """Wall time in epoch milliseconds."""
    return time.time_ns() // 1_000_000
