"""Runs that several modules look at: each is made once."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stream_calib.config import Config
from tests.integration.findings import Findings, find
from tests.integration.harness import Deployment, deployment
from tests.integration.lock_step import run_in_lock_step
from tests.integration.stream import EventDay, flight_days
from tests.kafka_broker import KafkaBroker

DAYS = 30
FAULT_DAYS = int(os.environ.get("FAULT_DAYS", "10"))
FAULT_SEED = int(os.environ.get("FAULT_SEED", "1"))


@pytest.fixture(scope="session")
def month() -> list[EventDay]:
    """A month of flights with oddities."""
    return flight_days(DAYS)


@pytest.fixture(scope="session")
def month_deployed(month: list[EventDay], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The month in lock-step, one process a role. It is over: only the server is still there."""
    roles = ("calibrate", "monitor", "refit", "alert")
    with _lock_step(month, tmp_path_factory.mktemp("month"), roles) as deployed:
        yield deployed


@pytest.fixture(scope="session")
def month_run(month_deployed: Deployment) -> tuple[Findings, Config]:
    """What it left behind."""
    return find(month_deployed), month_deployed.config


@pytest.fixture(scope="session")
def wide_deployed(month: list[EventDay], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The same with two calibrates, three monitors and two refits."""
    roles = ("calibrate", "calibrate", "monitor", "monitor", "monitor", "refit", "refit", "alert")
    with _lock_step(month, tmp_path_factory.mktemp("wide"), roles) as deployed:
        yield deployed


@pytest.fixture(scope="session")
def wide_run(wide_deployed: Deployment) -> tuple[Findings, Config]:
    """What that left behind."""
    return find(wide_deployed), wide_deployed.config


@contextmanager
def _lock_step(month: list[EventDay], folder: Path, roles: tuple[str, ...]) -> Iterator[Deployment]:
    with deployment(folder) as deployed:
        for role in roles:
            deployed.start(role)
        run_in_lock_step(deployed, month)
        for process in deployed.processes:
            process.terminate()
        yield deployed


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaBroker]:
    """A broker that tests may stop and start; each leaves it running. It takes values of 10 MB."""
    with KafkaBroker(properties={"message.max.bytes": "20000000", "replica.fetch.max.bytes": "20000000"}) as broker:
        yield broker


@pytest.fixture(scope="session")
def some_days() -> list[EventDay]:
    """As many days of flights with oddities as faults need: more by the environment (`make faults`)."""
    return flight_days(FAULT_DAYS, FAULT_SEED)


@pytest.fixture
def fault_random() -> random.Random:
    """Chooses where faults happen."""
    return random.Random(FAULT_SEED)
