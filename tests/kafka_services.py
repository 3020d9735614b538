"""A real Apache Kafka for tests. Never skipped: with none to be had, the fixtures fail and say what to install.

Order: the address in STREAM_CALIB_TEST_KAFKA; a Docker engine that answers, with the image that docker-compose.yml
names; a local process (kafka_broker.py). Wiping a broker is slow, so tests share one and take topic and group names of
their own (`fresh_name`). Tests that stop, kill or pause a broker always start a process of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from uuid import uuid4

import pytest
from docker.errors import DockerException

from stream_calib.errors import StreamCalibError
from tests import kafka_broker
from tests.kafka_broker import KafkaBroker
from tests.kafka_container import engine_answers, kafka_image, start_container

KAFKA_VARIABLE = "STREAM_CALIB_TEST_KAFKA"


def kafka_description() -> str:
    """One line for the test header: which broker the tests will use."""
    if address := os.environ.get(KAFKA_VARIABLE):
        return f"{address} (from {KAFKA_VARIABLE}; tests that kill a broker start one of their own)"
    if engine_answers():
        return f"{kafka_image()} in a container, or where that image cannot be had a local process"
    try:
        return kafka_broker.description()
    except StreamCalibError as error:
        return f"NONE: {error}, or set {KAFKA_VARIABLE}"


def fresh_name(kind: str) -> str:
    """A name of a topic or a group that nobody has used."""
    return f"{kind}-{uuid4().hex[:10]}"


@pytest.fixture(scope="session")
def kafka_bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """host:port of the session's broker, shared by all tests."""
    if address := os.environ.get(KAFKA_VARIABLE):
        yield address
        return
    with ExitStack() as stack:
        if engine_answers():
            try:
                yield start_container(stack)
                return
            except DockerException as error:
                reporter = request.config.pluginmanager.get_plugin("terminalreporter")
                assert reporter is not None
                reporter.write_line(f"kafka: a local process is used, since {kafka_image()} cannot be had: {error}")
        yield stack.enter_context(KafkaBroker()).bootstrap


@pytest.fixture
def own_kafka() -> Iterator[KafkaBroker]:
    """A running broker of the test's own, for tests that stop, kill or pause it."""
    with KafkaBroker() as broker:
        yield broker
