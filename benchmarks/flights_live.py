"""One run of the flights through the real service: Kafka, Redis and the four roles as processes, in lock-step."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress

from stream_calib.alerts.model import Alert
from stream_calib.backtest.exact.verify import Verification
from stream_calib.demo.flights import Flights, Period
from stream_calib.snapshot.report import RefitReport
from tests.integration.findings import read_topic
from tests.integration.harness import Deployment, Overrides, deployment
from tests.integration.lock_step import DeploymentLockStep
from tests.kafka_broker import KafkaBroker
from workers.backtest_verify import verify_live
from workers.demo import STREAM_ROLES
from workers.demo_results import served_probabilities

_PATIENT = {"session_timeout": "45s", "transaction_timeout": "40s"}
"""Of the log: where a machine has other work too, a slow process must not be taken for a dead one."""


@dataclass(frozen=True, slots=True, eq=False)
class LiveRun:
    """What a run served, decided and told."""

    served: NDArray[np.float64]
    """(scores,) by row of the flights."""
    reports: Sequence[RefitReport]
    """Of every request, in order."""
    alerts: Sequence[Alert]
    """Events of alerts as they are on the topic, each once, in order."""
    seconds: float
    """Wall time from the first event to the last alert delivered."""
    verification: Verification
    """Of a backtest of its topics."""


class _Reporting(DeploymentLockStep):
    """Collects the reports as they come: of an hourly run the state keeps the newest only."""

    def __init__(self, deployed: Deployment, flights: Flights) -> None:
        super().__init__(deployed, flights)
        self._store = deployed.state.store
        self.reports: list[RefitReport] = []

    def _settle(self, pane: int) -> None:
        super()._settle(pane)
        self.reports += [RefitReport.decode(raw) for raw in self._store.entries("reports", len(self.reports))]


def run_live(
    flights: Flights, periods: Sequence[Period], overrides: Overrides, broker: KafkaBroker, progress: Progress
) -> LiveRun:
    """Streams the periods, which begin with the first event, one by one through topics, a Redis and processes of the
    run's own.

    `overrides`: of the configuration in examples/flights. Raises DemoError where the service does not get on.
    """
    settings = {**overrides, "log": _PATIENT}
    with (
        tempfile.TemporaryDirectory(prefix="flights-") as folder,
        deployment(Path(folder), settings, kafka=broker) as deployed,
    ):
        deployed.start_all(*STREAM_ROLES)
        source = _Reporting(deployed, flights)
        began = time.monotonic()
        source.run(periods, progress)
        seconds = time.monotonic() - began
        deployed.until_markers_are_written()
        verification = verify_live(deployed.log, deployed.config, deployed.state.model_key, deployed.state.store)
        served = served_probabilities(deployed.log, deployed.config, flights, periods[-1].scores.stop)
        partitions = read_topic(deployed, deployed.config.topics.alerts)
        told = [Alert.decode(record.value or b"") for records in partitions for record in records]
        found = {alert.id: alert for alert in told}
        return LiveRun(served, source.reports, list(found.values()), seconds, verification)
