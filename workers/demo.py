"""The demonstration: a year of flights through the real roles, each its own process, in lock-step of one day."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from threading import Event

from rich.progress import Progress

from stream_calib.alerts.outbox import waiting
from stream_calib.config import Config
from stream_calib.demo.flights import Flights, Period
from stream_calib.errors import StreamCalibError
from stream_calib.events.control import clock_record
from stream_calib.transport.port import Log, Outgoing
from workers.calibrate import Calibrate
from workers.deployment import State
from workers.role import wall_clock_ms
from workers.run import STOP_WITH_PARENT

STREAM_ROLES = ("calibrate", "monitor", "refit", "alert")
"""The roles on the stream; `serve` answers requests, of which there are none here."""

_STALLED_AFTER_S = 60.0
_LOOK_EVERY_S = 0.004
_END_WITHIN_S = 20.0


class DemoError(StreamCalibError):
    """The demonstration could not be carried through."""


class DemoStoppedError(DemoError):
    """Somebody asked it to stop."""


@dataclass(frozen=True, slots=True)
class RoleProcesses:
    """Running role processes; their output goes to a log file each."""

    processes: dict[str, subprocess.Popen[bytes]]
    logs: Path

    def check(self) -> None:
        """Raises DemoError when one has ended."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                last = (self.logs / f"{name}.log").read_text(errors="replace").strip().splitlines()[-15:]
                raise DemoError(
                    f"the process of {name} ended with {process.returncode}; its last words:\n" + "\n".join(last)
                )


@contextmanager
def role_processes(
    config_file: Path, environ: Mapping[str, str], logs: Path, roles: Sequence[str] = STREAM_ROLES
) -> Iterator[RoleProcesses]:
    """Starts the roles, each in a process (and process group) of its own, and ends them at the end."""
    logs.mkdir(parents=True, exist_ok=True)
    environ = {**environ, STOP_WITH_PARENT: str(os.getpid())}
    processes: dict[str, subprocess.Popen[bytes]] = {}
    with ExitStack() as stack:
        try:
            for role in roles:
                output = stack.enter_context((logs / f"{role}.log").open("wb"))
                command = [sys.executable, "-m", "workers.cli", "run", "--role", role, "--config", str(config_file)]
                processes[role] = subprocess.Popen(
                    command, env=environ, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
                )
            yield RoleProcesses(processes, logs)
        finally:
            for process in processes.values():
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + _END_WITHIN_S
            for process in processes.values():
                try:
                    process.wait(max(0.1, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


class LockStep:
    """The source: writes a period, then waits until all that it made decidable is decided, settled and served."""

    def __init__(
        self, log: Log, state: State, config: Config, flights: Flights, roles: RoleProcesses, stop: Event
    ) -> None:
        self._log, self._state, self._config = log, state, config
        self._flights, self._roles, self._stop = flights, roles, stop

    def run(self, periods: Sequence[Period], progress: Progress) -> None:
        """Streams the periods, which follow each other, and closes the topics. Raises DemoError when nothing moves any
        more, and DemoStoppedError after `stop` was set."""
        task = progress.add_task("streaming", total=len(periods), what="")
        for period in periods:
            self._write(period)
            self._settle(self._decidable(period.end_ms))
            version = self._state.snapshots.current() or "no snapshot yet"
            progress.update(task, advance=1, what=f"{_date(period.start_ms)}  {version}")
        self._end(periods[-1].end_ms)
        scores = periods[-1].scores.stop
        last_ms = int(self._flights.score_time_ms[:scores].max())
        self._settle(last_ms // self._config.windows.pane_ms)
        self._wait_for_alerts()

    def _write(self, period: Period) -> None:
        """The period's events, keyed by id, and clock records: without traffic at its end, clocks would stand still."""
        topics, flights = self._config.topics, self._flights
        records = [
            Outgoing(topics.scores, flights.event_id[row].encode(), value)
            for row, value in zip(
                range(period.scores.start, period.scores.stop), flights.score_events(period.scores), strict=True
            )
        ]
        labelled = flights.label_row[period.labels].tolist()
        records += [
            Outgoing(topics.labels, flights.event_id[row].encode(), value)
            for row, value in zip(labelled, flights.label_events(period.labels), strict=True)
        ]
        self._log.produce(records + self._clocks(period.end_ms, end=False))

    def _end(self, clock_ms: int) -> None:
        self._log.produce(self._clocks(clock_ms, end=True))

    def _clocks(self, clock_ms: int, *, end: bool) -> list[Outgoing]:
        value, headers = clock_record(clock_ms, end=end)
        topics = self._config.topics
        return [
            Outgoing(topic, None, value, headers, partition)
            for topic in (topics.scores, topics.labels)
            for partition in range(self._log.partitions(topic))
        ]

    def _decidable(self, clock_ms: int) -> int:
        """The last pane that matures when every clock stands at `clock_ms`."""
        windows = self._config.windows
        lateness = max(windows.score_lateness_ms, windows.label_lateness_ms)
        return (clock_ms - lateness - windows.horizon_ms) // windows.pane_ms - 1

    def _settle(self, pane: int) -> None:
        names = ("first_pane", "decided", "open_request", "current", "closed", "matured")
        seen: tuple[object, ...] = ()
        moved_at = time.monotonic()
        while True:
            found = self._state.store.read(names)
            first = found["first_pane"]
            done = first is not None and (
                pane < int(first) or (int(found["decided"] or -1) >= pane and not found["open_request"])
            )
            if done and self._served(found["current"] or ""):
                return
            self._roles.check()
            now = tuple(found.values())
            if now != seen:
                seen, moved_at = now, time.monotonic()
            elif time.monotonic() - moved_at > _STALLED_AFTER_S:
                raise DemoError(f"nothing has moved for {_STALLED_AFTER_S:.0f} s, waiting for pane {pane}: {found}")
            self._pause()

    def _served(self, version: str) -> bool:
        statuses = self._state.board.all(wall_clock_ms())
        return {s.facts["snapshot"] for s in statuses if s.role == Calibrate.name} == {version}

    def _wait_for_alerts(self) -> None:
        deadline = time.monotonic() + _STALLED_AFTER_S
        while waiting(self._state.store):
            if time.monotonic() > deadline:
                raise DemoError("the outbox is not drained; is the alert role running?")
            self._roles.check()
            self._pause()

    def _pause(self) -> None:
        if self._stop.wait(_LOOK_EVERY_S):
            raise DemoStoppedError("stopped")


def refit_outcomes(state: State) -> tuple[Counter[str], Counter[str]]:
    """Outcome -> number of requests; code of refusal -> number of candidates (one may be refused for several)."""
    reports = state.snapshots.reports()
    refused = Counter[str](code for report in reports for code in report.refused_for)
    return Counter(report.outcome for report in reports), refused


def demo_config_file() -> Path:
    """The flights deployment: packaged with the wheel, or in the examples of a checkout."""
    packaged = Path(str(files("stream_calib.demo").joinpath("data/stream-calib.toml")))
    checkout = Path(__file__).parents[1] / "examples" / "flights" / "stream-calib.toml"
    found = next((path for path in (packaged, checkout) if path.is_file()), None)
    if found is None:
        raise DemoError(f"neither {packaged} nor {checkout} is there; reinstall stream-calib")
    return found


def _date(time_ms: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(time_ms / 1000))
