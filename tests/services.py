"""Real servers for tests. Never skipped: with none to be had, the fixtures fail and say what to install.

Order: the address in STREAM_CALIB_TEST_REDIS, else a local process. Tests that use one of these fixtures get the marker
`services` by themselves (tests/conftest.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import pytest

from stream_calib.errors import StreamCalibError
from stream_calib.redis_connection import connect
from stream_calib.transport.embedded_server import EmbeddedServer, find_server

REDIS_VARIABLE = "STREAM_CALIB_TEST_REDIS"

SERVICE_FIXTURES = frozenset({"redis_server_url", "redis_url", "own_redis", "kafka_bootstrap", "own_kafka"})


def redis_description() -> str:
    """One line for the test header: which server the tests will use."""
    if address := os.environ.get(REDIS_VARIABLE):
        return f"{address} (from {REDIS_VARIABLE}; its databases are flushed)"
    try:
        return f"local process of {find_server()}"
    except StreamCalibError as error:
        return f"NONE: {error}, or set {REDIS_VARIABLE}"


@pytest.fixture(scope="session")
def redis_server_url() -> Iterator[str]:
    """The session's server, shared by all tests; use `redis_url` to find it empty."""
    if address := os.environ.get(REDIS_VARIABLE):
        yield _of_this_worker(address)
        return
    with EmbeddedServer() as server:
        yield server.url


@pytest.fixture
def redis_url(redis_server_url: str) -> str:
    """Address of an empty database on a running server."""
    with connect(redis_server_url) as client:
        client.flushdb()
        client.script_flush()
    return redis_server_url


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[EmbeddedServer]:
    """A running server of the test's own (appendonly), for tests that kill or restart it."""
    with EmbeddedServer(tmp_path / "redis") as server:
        yield server


def _of_this_worker(address: str) -> str:
    """Another database of the same server for each pytest-xdist worker, so that they do not flush each other."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not worker:
        return address
    database = int(worker.removeprefix("gw"))
    parts = urlsplit(address)
    if parts.scheme == "unix":
        return urlunsplit(parts._replace(query=urlencode({**dict(parse_qsl(parts.query)), "db": database})))
    return urlunsplit(parts._replace(path=f"/{database}"))
