"""Running roles in one process: a thread for each, an orderly end on SIGTERM or Ctrl-C, at once on the second."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from types import FrameType

from stream_calib.config import Config
from stream_calib.errors import StreamCalibError
from workers.alert import AlertDelivery
from workers.calibrate import Calibrate
from workers.monitor import Monitor
from workers.refit import Refit
from workers.role import Role, RoleLoop

_LOG = logging.getLogger(__name__)

ROLES: dict[str, Callable[[Config], Role]] = {
    "calibrate": Calibrate,
    "monitor": Monitor,
    "refit": Refit,
    "alert": AlertDelivery,
}
_IDLE_WAIT_S = {"calibrate": 0.05, "monitor": 0.01, "refit": 0.02, "alert": 0.1}
_STOP_WITHIN_S = 20.0
_LOOK_AT_PARENT_S = 1.0

STOP_WITH_PARENT = "STREAM_CALIB_STOP_WITH_PARENT"
"""Environment variable: id of the process that started this one, which ends when that one is gone."""


class RoleFailedError(StreamCalibError):
    """A role ended with an error that it could not go on from."""


def run_roles(names: Sequence[str], config: Config, stop: threading.Event | None = None) -> None:
    """Runs the roles until a signal, `stop`, or the first failure. Raises RoleFailedError for the last."""
    stop = stop or threading.Event()
    if threading.current_thread() is threading.main_thread():
        _stop_on_signals(stop)
    loops = [RoleLoop(ROLES[name](config), stop, _IDLE_WAIT_S[name]) for name in names]
    for loop in loops:
        loop.start()
    _LOG.info("running %s for %s/%s", ", ".join(names), config.model.name, config.model.version)
    _wait(stop)
    _LOG.info("stopping")
    for loop in loops:
        loop.join(_STOP_WITHIN_S)
        if loop.is_alive():
            _LOG.error("%s did not end within %.0f s; its unfinished batch is dropped", loop.name, _STOP_WITHIN_S)
    _LOG.info("stopped")
    failed = [loop for loop in loops if loop.error is not None]
    if failed:
        raise RoleFailedError(f"{failed[0].name} ended: {failed[0].error}") from failed[0].error


def _wait(stop: threading.Event) -> None:
    """Until asked to stop; or orphaned, where the parent asked for that: it may be killed with no chance to stop us."""
    if not (parent_id := os.environ.get(STOP_WITH_PARENT)):
        stop.wait()
        return
    parent = int(parent_id)  # it may be gone before we come here, so it cannot be asked for now
    while not stop.wait(_LOOK_AT_PARENT_S) and os.getppid() == parent:
        pass
    stop.set()


def _stop_on_signals(stop: threading.Event) -> None:
    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            # The second one: nothing that matters is in memory, so leaving at once is safe.
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
