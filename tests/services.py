"""Real Redis-compatible servers for tests. Never skipped: with none to be had, the fixtures fail and say what to
install.

Order: the address in STREAM_CALIB_TEST_REDIS; a Docker engine that answers, with the image that docker-compose.yml
names; a local process. Tests that use one of these fixtures get the marker `services` (tests/conftest.py).
Tests that kill, demote or fail over servers always start processes of their own (redis_servers.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import docker
import pytest
import redis
from docker.errors import DockerException

from stream_calib.config_connections import RedisSection
from stream_calib.errors import StreamCalibError
from stream_calib.redis_clients import ClusterClient
from stream_calib.redis_connection import connect
from stream_calib.transport.embedded_server import EmbeddedServer, find_server
from tests.redis_servers import RedisClusterServers, WatchedPair, wait_until

REDIS_VARIABLE = "STREAM_CALIB_TEST_REDIS"
_COMPOSE_FILE = Path(__file__).parents[1] / "docker-compose.yml"
_REDIS_PORT = 6379

SERVICE_FIXTURES = frozenset(
    {
        *("redis_server_url", "redis_url", "redis_client", "own_redis"),
        *("redis_cluster_url", "cluster_client", "own_cluster", "redis_sentinels"),
        *("kafka_bootstrap", "own_kafka"),
    }
)


def redis_description() -> str:
    """One line for the test header: which server the tests will use."""
    if address := os.environ.get(REDIS_VARIABLE):
        return f"{address} (from {REDIS_VARIABLE}; its databases are flushed)"
    if docker_engine_answers():
        return f"{redis_image()} in a container, or where that image cannot be had a local process"
    try:
        return f"local process of {find_server()}"
    except StreamCalibError as error:
        return f"NONE: {error}, or set {REDIS_VARIABLE}"


@cache
def docker_engine_answers() -> bool:
    try:
        docker.from_env(timeout=3).ping()
    except DockerException:
        return False
    return True


def redis_image() -> str:
    """The image that docker-compose.yml runs as Redis."""
    found = re.search(r"image: (?:\$\{REDIS_IMAGE:-)?(redis:[^}\s]+)", _COMPOSE_FILE.read_text(encoding="utf-8"))
    assert found, f"{_COMPOSE_FILE} names no image redis:..."
    return os.environ.get("REDIS_IMAGE") or found[1]


@pytest.fixture(scope="session")
def redis_server_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The session's server, shared by all tests; use `redis_url` to find it empty."""
    if address := os.environ.get(REDIS_VARIABLE):
        yield _of_this_worker(address)
        return
    with ExitStack() as stack:
        url = _container(stack, request) if docker_engine_answers() else None
        yield url or stack.enter_context(EmbeddedServer()).url


def _container(stack: ExitStack, request: pytest.FixtureRequest) -> str | None:
    """A server in a container, ended with the stack; None, with a printed reason, where the image cannot be had."""
    from testcontainers.core.container import DockerContainer

    command = "redis-server --save '' --appendonly yes --maxmemory-policy noeviction --protected-mode no"
    container = DockerContainer(redis_image()).with_command(command).with_exposed_ports(_REDIS_PORT)
    try:
        container.start()
    except DockerException as error:
        reporter = request.config.pluginmanager.get_plugin("terminalreporter")
        assert reporter is not None
        reporter.write_line(f"redis: a local process is used, since {redis_image()} cannot be had: {error}")
        return None
    stack.callback(container.stop)
    url = f"redis://{container.get_container_host_ip()}:{container.get_exposed_port(_REDIS_PORT)}/0"
    with redis.Redis.from_url(url) as client:
        wait_until(client.ping, f"the container of {redis_image()} answers")
    return url


@pytest.fixture
def redis_url(redis_server_url: str) -> str:
    """Address of an empty database on a running server."""
    with connect(redis_server_url) as client:
        client.flushdb()
        client.script_flush()
    return redis_server_url


@pytest.fixture
def redis_client(redis_url: str) -> Iterator[redis.Redis]:
    """Connected to an empty database."""
    with connect(redis_url) as client:
        yield client


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[EmbeddedServer]:
    """A running server of the test's own (appendonly), for tests that kill or restart it."""
    with EmbeddedServer(tmp_path / "redis") as server:
        yield server


@pytest.fixture(scope="session")
def redis_cluster_url() -> Iterator[str]:
    """Address of a node of the session's Redis Cluster of three primaries, shared by all tests."""
    with RedisClusterServers() as servers:
        yield servers.url


@pytest.fixture
def cluster_client(redis_cluster_url: str) -> Iterator[ClusterClient]:
    """Connected to the session's Redis Cluster, emptied."""
    with connect(RedisSection(url=redis_cluster_url, cluster=True)) as client:
        assert isinstance(client, ClusterClient)
        client.flushdb()
        client.script_flush()
        yield client


@pytest.fixture
def own_cluster() -> Iterator[RedisClusterServers]:
    """A Redis Cluster of the test's own, each primary with a replica, for tests that fail over."""
    with RedisClusterServers(replicas=1) as servers:
        yield servers


@pytest.fixture
def redis_sentinels() -> Iterator[WatchedPair]:
    """A primary with a replica under three Sentinels, of the test's own."""
    with WatchedPair() as pair:
        yield pair


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
