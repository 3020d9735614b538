"""Runs that several modules look at: each is made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_calib.config import Config
from tests.integration.findings import Findings, find
from tests.integration.harness import deployment
from tests.integration.lock_step import run_in_lock_step
from tests.integration.stream import EventDay, flight_days

DAYS = 30


@pytest.fixture(scope="session")
def month() -> list[EventDay]:
    """A month of flights with oddities."""
    return flight_days(DAYS)


@pytest.fixture(scope="session")
def month_run(month: list[EventDay], tmp_path_factory: pytest.TempPathFactory) -> tuple[Findings, Config]:
    """The month in lock-step, one process a role."""
    return _lock_step(month, tmp_path_factory.mktemp("month"), ("calibrate", "monitor", "refit", "alert"))


@pytest.fixture(scope="session")
def wide_run(month: list[EventDay], tmp_path_factory: pytest.TempPathFactory) -> tuple[Findings, Config]:
    """The same with two calibrates, three monitors and two refits."""
    roles = ("calibrate", "calibrate", "monitor", "monitor", "monitor", "refit", "refit", "alert")
    return _lock_step(month, tmp_path_factory.mktemp("wide"), roles)


def _lock_step(month: list[EventDay], folder: Path, roles: tuple[str, ...]) -> tuple[Findings, Config]:
    with deployment(folder) as deployed:
        for role in roles:
            deployed.start(role)
        run_in_lock_step(deployed, month)
        return find(deployed), deployed.config
