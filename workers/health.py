"""Liveness and readiness of a process, and the watchdog that says where a role hangs.

Alive: every role's loop has come round lately. Not alive: some call does not return, and only a restart helps.
Ready: every role is open and at work. Not ready: it starts, waits for a server, or ends; a restart helps nothing.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from workers.role import RoleLoop

_LOG = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0


class Health:
    """What /healthz and /readyz answer: 200, or 503 with the reason of each role."""

    def __init__(
        self,
        loops: Sequence[RoleLoop],
        stop: threading.Event,
        hung_after_s: float,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`stop`: set once the process has been asked to end."""
        self._loops, self._stop, self._hung_after_s, self._monotonic_s = loops, stop, hung_after_s, monotonic_s

    def hung(self) -> dict[RoleLoop, float]:
        """Loops that have not come round for too long, and for how long, in seconds."""
        now = self._monotonic_s()
        since = {loop: now - loop.turned_at_s for loop in self._loops if loop.is_alive()}
        return {
            loop: away_s for loop, away_s in since.items() if away_s > max(self._hung_after_s, loop.role.longest_step_s)
        }

    def not_alive(self) -> dict[str, str]:
        """Role -> what is wrong; empty where all is well."""
        return {loop.name: f"has not come round for {away_s:.0f} s" for loop, away_s in self.hung().items()}

    def not_ready(self) -> dict[str, str]:
        """Role -> why it is not ready; empty where all are."""
        if self._stop.is_set():
            return {loop.name: "ends" for loop in self._loops}
        hung = self.not_alive()
        reasons = {loop.name: hung.get(loop.name, loop.not_ready) for loop in self._loops}
        return {name: reason for name, reason in reasons.items() if reason is not None}

    def routes(self) -> list[Route]:
        async def healthz(request: Request) -> JSONResponse:
            return _answer(self.not_alive())

        async def readyz(request: Request) -> JSONResponse:
            return _answer(self.not_ready())

        return [Route("/healthz", healthz), Route("/readyz", readyz)]


def _answer(faults: dict[str, str]) -> JSONResponse:
    if faults:
        return JSONResponse({"ok": False, "roles": faults}, status_code=503)
    return JSONResponse({"ok": True})


class Watchdog(threading.Thread):
    """Logs once, with its stack, that a role hangs: who is called at night must see in what."""

    def __init__(self, health: Health, done: threading.Event, look_every_s: float = _LOOK_EVERY_S) -> None:
        """`done`: set when there is nothing to be watched any more."""
        super().__init__(name="watchdog", daemon=True)
        self._health, self._done, self._look_every_s = health, done, look_every_s

    def run(self) -> None:
        told: set[RoleLoop] = set()
        looked_at = time.monotonic()
        while not self._done.wait(self._look_every_s):
            stood_still, looked_at = time.monotonic() - looked_at > 5 * self._look_every_s, time.monotonic()
            if stood_still:
                continue  # the whole process did; the role may come round now
            hung = self._health.hung()
            for loop, away_s in hung.items():
                if loop not in told:
                    _LOG.error("%s hangs, for %.0f s now, in %s", loop.name, away_s, stack_of(loop))
            for loop in told - set(hung):
                _LOG.warning("%s goes on", loop.name)
            told = set(hung)


def stack_of(thread: threading.Thread) -> str:
    """Where the thread is now: its calls in one line, the innermost last."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None:
        return "(it has ended)"
    calls = [call for call in traceback.extract_stack(frame) if call.filename != threading.__file__]
    return " > ".join(f"{'/'.join(Path(call.filename).parts[-2:])}:{call.lineno} {call.name}" for call in calls)
