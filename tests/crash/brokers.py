"""Kafka under a run: one broker, or three of which one may be lost for good."""

from __future__ import annotations

import subprocess
from base64 import urlsafe_b64encode
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from stream_calib.errors import StreamCalibError
from tests.kafka_broker import _CONTROLLER, KafkaBroker


def short_uuid() -> str:
    """As Kafka writes them."""
    return urlsafe_b64encode(uuid4().bytes).decode().rstrip("=").replace("-", "A")


class _Member(KafkaBroker):
    """One of three brokers that are also the controllers."""

    def __init__(self, node: int, cluster: str) -> None:
        self._node, self._cluster, self._voter = node, cluster, short_uuid()
        self._voters = ""
        super().__init__(
            properties={
                "node.id": str(node),
                "default.replication.factor": "3",
                "min.insync.replicas": "2",
                "offsets.topic.replication.factor": "3",
                "transaction.state.log.replication.factor": "3",
                "transaction.state.log.min.isr": "2",
                "replica.lag.time.max.ms": "3000",
            },
            heap_megabytes=256,
        )

    @property
    def voter(self) -> str:
        return f"{self._node}@{self.address(_CONTROLLER)}:{self._voter}"

    def meet(self, members: list[_Member]) -> None:
        """Before the first start."""
        self._voters = ",".join(member.voter for member in members)
        self._properties["controller.quorum.bootstrap.servers"] = ",".join(m.address(_CONTROLLER) for m in members)

    def _format(self, settings: Path) -> None:
        arguments = ("format", "-t", self._cluster, "-c", str(settings), "--initial-controllers", self._voters)
        command = self._java("kafka.tools.StorageTool", *arguments)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            settings.unlink()
            raise StreamCalibError(f"the test broker's directory cannot be formatted: {done.stdout}{done.stderr}")

    def launch(self) -> None:
        """Starts without waiting until it serves, which none of three does alone."""
        settings = self._directory / "server.properties"
        settings.write_text("".join(f"{name}={value}\n" for name, value in self._properties.items()))
        self._format(settings)
        wait, self._wait_until_started = self._wait_until_started, lambda logged: None  # type: ignore[method-assign]  # of this object, for now
        try:
            self._launch(self._java("kafka.Kafka", str(settings)))
        finally:
            self._wait_until_started = wait  # type: ignore[method-assign]  # as above

    def wait_until_started(self) -> None:
        self._wait_until_started(0)


class Brokers:
    """Context manager."""

    def __init__(self, count: int) -> None:
        """`count`: 1 or 3."""
        cluster = short_uuid()
        self._brokers = [KafkaBroker()] if count == 1 else [_Member(n + 1, cluster) for n in range(count)]
        self._opened = ExitStack()

    @property
    def first(self) -> KafkaBroker:
        return self._brokers[0]

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self._brokers)

    def __enter__(self) -> Brokers:
        members = [broker for broker in self._brokers if isinstance(broker, _Member)]
        for broker in self._brokers:
            self._opened.callback(broker.close)
        for member in members:
            member.meet(members)
            member.launch()
        for member in members:
            member.wait_until_started()
        if not members:
            self.first.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def restart(self) -> None:
        """All of one broker, in good order: one that is killed right after a commit may keep its readers waiting for
        minutes (docs/transactions.md)."""
        self.first.restart()

    def lose(self, number: int) -> None:
        """One of them, for good."""
        self._brokers[number].kill()

    def limit_values(self, topic: str, most_bytes: int | None) -> None:
        """The topic takes no larger records from now on; None: what the brokers' default is."""
        change = ("DELETE", None) if most_bytes is None else ("SET", str(most_bytes))
        with_limit = {"max.message.bytes": change}
        admin: Any = KafkaAdminClient(bootstrap_servers=self.bootstrap.split(","))
        try:
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=with_limit)])
        finally:
            admin.close()

    def delete(self, topics: list[str]) -> None:
        admin: Any = KafkaAdminClient(bootstrap_servers=self.bootstrap.split(","))
        try:
            admin.delete_topics(topics)
        finally:
            admin.close()
