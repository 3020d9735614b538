"""Running roles in one process: a thread for each, an orderly end on SIGTERM or Ctrl-C, at once on the second."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import chain

from stream_calib import __version__, metrics
from stream_calib.config import Config
from stream_calib.config_identity import configured_keys
from stream_calib.config_values import mask_url
from stream_calib.errors import StreamCalibError
from stream_calib.garbage_collection import COLLECT_EVERY_S, collect_seldom, give_back_memory
from workers.alert import AlertDelivery
from workers.calibrate import Calibrate
from workers.deployment import log_address
from workers.health import Health, Watchdog, stack_of
from workers.http_server import HttpServer
from workers.monitor import Monitor
from workers.refit import Refit
from workers.role import Role, RoleLoop
from workers.serve import Serve
from workers.stopping import stopped_by_signals
from workers.topic_setup import ready_topics
from workers.tracing import traces_sent

_LOG = logging.getLogger(__name__)

ROLES: dict[str, Callable[[Config], Role]] = {
    "calibrate": Calibrate,
    "monitor": Monitor,
    "refit": Refit,
    "alert": AlertDelivery,
    "serve": Serve,
}
_IDLE_WAIT_S = {"calibrate": 0.05, "monitor": 0.01, "refit": 0.02, "alert": 0.1, "serve": 0.1}
_STOP_WITHIN_S = 20.0
_LOOK_AT_PARENT_S = 1.0
_LOOK_AT_STOP_S = 0.1

STOP_WITH_PARENT = "STREAM_CALIB_STOP_WITH_PARENT"
"""Environment variable: id of the process that started this one, which ends when that one is gone."""


class RoleFailedError(StreamCalibError):
    """A role ended with an error that it could not go on from."""


def run_roles(names: Sequence[str], config: Config, stop: threading.Event | None = None) -> None:
    """Runs the roles until a signal, `stop`, or the first failure. Raises RoleFailedError for the last; what the start
    may raise is ready_topics' and HttpServer's.

    A role that does not end within a bound ends the process at once, with code 1.
    """
    stop = stop or threading.Event()
    metrics.BUILD.labels(__version__).set(1)
    with ExitStack() as opened:
        if threading.current_thread() is threading.main_thread():
            opened.enter_context(stopped_by_signals(stop))
            collect_seldom()
        opened.enter_context(traces_sent(config.telemetry))
        loops = [RoleLoop(ROLES[name](config), stop, _IDLE_WAIT_S[name]) for name in names]
        health = Health(loops, stop, config.http.hung_after_ms / 1000)
        if config.http.listen != "off":
            routes = chain(health.routes(), *(loop.role.routes() for loop in loops))
            server = opened.enter_context(HttpServer(config.http, list(routes)))
            _LOG.info("metrics, health and readiness on %s", server.address)
        ended = threading.Event()
        opened.callback(ended.set)
        if _prepared(names, config, stop):
            for loop in loops:
                loop.start()
            Watchdog(health, ended).start()
            models = ", ".join(map(str, configured_keys(config))) or "the models that records name"
            _LOG.info("running %s for %s", ", ".join(names), models)
            _wait(stop)
            _LOG.info("stopping")
            _end(loops)
    _LOG.info("stopped")
    failed = [loop for loop in loops if loop.error is not None]
    if failed:
        raise RoleFailedError(f"{failed[0].name} ended: {failed[0].error}") from failed[0].error


class _Preparation(threading.Thread):
    """Sees to the topics, on a thread: a log that does not answer must not keep the process from ending."""

    def __init__(self, names: Sequence[str], config: Config) -> None:
        super().__init__(name="start", daemon=True)
        self._names, self._config = names, config
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            ready_topics(self._config, self._names)
        except Exception as error:
            self.error = error  # raised by the main thread


def _prepared(names: Sequence[str], config: Config, stop: threading.Event) -> bool:
    """False when the process was asked to end meanwhile."""
    preparation = _Preparation(names, config)
    _LOG.info("waiting for the log at %s; the state is at %s", log_address(config), mask_url(config.redis.url))
    preparation.start()
    while preparation.is_alive() and not stop.is_set():
        preparation.join(_LOOK_AT_STOP_S)
    if preparation.error is not None:
        raise preparation.error
    return not stop.is_set()


def _end(loops: Sequence[RoleLoop]) -> None:
    """Returns when all have ended; otherwise the process ends here."""
    give_up = time.monotonic() + _STOP_WITHIN_S
    for loop in loops:
        loop.join(max(0.0, give_up - time.monotonic()))
    hung = [loop for loop in loops if loop.is_alive()]
    for loop in hung:
        _LOG.error(
            "%s did not end within %.0f s; its unfinished batch is dropped. It is in %s",
            loop.name,
            _STOP_WITHIN_S,
            stack_of(loop),
        )
    if hung:
        # An orderly exit would wait for what the hung call holds.
        logging.shutdown()
        os._exit(1)


def _wait(stop: threading.Event) -> None:
    """Until asked to stop; or orphaned, where the parent asked for that: it may be killed with no chance to stop us."""
    # By its id in the environment: it may be gone before it could be asked for here.
    parent = os.environ.get(STOP_WITH_PARENT)
    collected = time.monotonic()
    while not stop.wait(_LOOK_AT_PARENT_S) and not (parent and os.getppid() != int(parent)):
        if time.monotonic() - collected >= COLLECT_EVERY_S:
            give_back_memory()
            collected = time.monotonic()
    stop.set()
