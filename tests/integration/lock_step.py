"""A run in lock-step of one day over the stream with oddities: the demo's own source with other records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event

from rich.progress import Progress

from stream_calib.demo.flights import Flights, Period, load_flights
from stream_calib.transport.port import Outgoing
from tests.integration.harness import Deployment
from tests.integration.stream import EventDay
from workers.demo import LockStep, RoleProcesses


@dataclass(frozen=True, slots=True)
class _Running(RoleProcesses):
    """The deployment's processes, in the form that the source watches."""

    deployed: Deployment

    def check(self) -> None:
        self.deployed.check()


class DeploymentLockStep(LockStep):
    """The demo's source over a deployment for tests."""

    def __init__(self, deployed: Deployment, flights: Flights) -> None:
        running = _Running({}, deployed.folder, deployed)
        super().__init__(deployed.log, deployed.state, deployed.config, flights, running, Event())


class _OddLockStep(DeploymentLockStep):
    def __init__(self, deployed: Deployment, flights: Flights, days: Sequence[EventDay]) -> None:
        super().__init__(deployed, flights)
        self._deployed = deployed
        self._days = {day.start_ms: day for day in days}

    def _write(self, period: Period) -> None:
        events = self._days[period.start_ms]
        records = [Outgoing(event.topic, event.key, event.value) for event in events.events]
        self._deployed.log.produce(records + self._deployed.clocks(events.end_ms))


def run_in_lock_step(deployed: Deployment, days: Sequence[EventDay]) -> None:
    """Writes day after day, each when the one before is decided, settled and served; then closes the topics."""
    flights = load_flights()
    with Progress(disable=True) as progress:
        _OddLockStep(deployed, flights, days).run(flights.days()[: len(days)], progress)
