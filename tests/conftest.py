"""What all tests share: real servers, the marker of the tests that need them, and a log that no test leaves changed."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from hypothesis import settings

from tests import kafka_services, services
from tests.kafka_services import kafka_bootstrap, own_kafka
from tests.logging_state import logging_as_before
from tests.services import (
    cluster_client,
    own_cluster,
    own_redis,
    redis_client,
    redis_cluster_url,
    redis_sentinels,
    redis_server_url,
    redis_url,
)

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("without deadlines", deadline=None)
settings.load_profile("without deadlines")

__all__ = [
    "cluster_client",
    "kafka_bootstrap",
    "own_cluster",
    "own_kafka",
    "own_redis",
    "redis_client",
    "redis_cluster_url",
    "redis_sentinels",
    "redis_server_url",
    "redis_url",
]


def pytest_report_header() -> list[str]:
    return [f"redis: {services.redis_description()}", f"kafka: {kafka_services.kafka_description()}"]


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and services.SERVICE_FIXTURES.intersection(item.fixturenames):
            item.add_marker(pytest.mark.services)


@pytest.hookimpl(wrapper=True)  # around the test's fixtures too: those of a module may run commands
def pytest_runtest_protocol() -> Generator[None, object, object]:
    with logging_as_before():
        return (yield)
