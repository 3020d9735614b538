"""Apache Kafka for tests in a container, where a Docker engine answers: the image that docker-compose.yml names."""

from __future__ import annotations

import os
import re
import time
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import docker
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from docker.errors import DockerException

from stream_calib.errors import StreamCalibError
from tests.kafka_broker import TEST_BROKER_PROPERTIES, free_ports

_COMPOSE_FILE = Path(__file__).parents[1] / "docker-compose.yml"
_CONTROLLER_PORT = 9093
_ANSWERS_WITHIN_S = 120.0


def engine_answers() -> bool:
    try:
        docker.from_env(timeout=3).ping()
    except DockerException:
        return False
    return True


def kafka_image() -> str:
    """The image that docker-compose.yml runs as Kafka."""
    found = re.search(r"image: (?:\$\{KAFKA_IMAGE:-)?(apache/kafka:[^}\s]+)", _COMPOSE_FILE.read_text(encoding="utf-8"))
    assert found, f"{_COMPOSE_FILE} names no image apache/kafka:..."
    return os.environ.get("KAFKA_IMAGE") or found[1]


def start_container(stack: ExitStack) -> str:
    """host:port of a broker in a container, which ends with the stack.

    Raises DockerException where the image cannot be had, StreamCalibError where the broker does not come up.
    """
    from testcontainers.core.container import DockerContainer

    (port,) = free_ports(1)
    container = DockerContainer(kafka_image()).with_bind_ports(port, port)
    host = container.get_container_host_ip()
    for name, value in {**TEST_BROKER_PROPERTIES, **_network(host, port)}.items():
        container = container.with_env(f"KAFKA_{name.upper().replace('.', '_')}", value)
    container = container.with_env("CLUSTER_ID", uuid4().hex[:22]).with_env("KAFKA_HEAP_OPTS", "-Xmx384m")
    container.start()
    stack.callback(container.stop)
    bootstrap = f"{host}:{port}"
    _wait_until_it_answers(bootstrap)
    return bootstrap


def _network(host: str, port: int) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@localhost:{_CONTROLLER_PORT}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://:{port},CONTROLLER://:{_CONTROLLER_PORT}",
        "advertised.listeners": f"PLAINTEXT://{host}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }


def _wait_until_it_answers(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + _ANSWERS_WITHIN_S
    while True:
        try:
            admin.list_topics(timeout=1.0)
            return
        except KafkaException as error:
            if time.monotonic() > deadline:
                raise StreamCalibError(f"the container of {kafka_image()} does not answer: {error}") from error
