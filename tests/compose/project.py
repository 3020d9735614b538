"""docker-compose.yml brought up as a project of the tests' own, beside whatever else runs in the engine."""

from __future__ import annotations

import json
import socket
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from stream_calib.errors import StreamCalibError
from tests.compose.engine import Engine

CHECKOUT = Path(__file__).parents[2]
PROJECT = "stream-calib-test"
ROLES = ("calibrate", "monitor", "refit", "alert")
_LOOK_AGAIN_S = 0.5

T = TypeVar("T")


class Project:
    """The containers of docker-compose.yml."""

    def __init__(self, engine: Engine, images: Mapping[str, str]) -> None:
        self._engine = engine
        self.kafka_port, self.prometheus_port = _free_ports(2)
        self._environ = {
            "STREAM_CALIB_IMAGE": "stream-calib:test",
            "KAFKA_PORT": str(self.kafka_port),
            "PROMETHEUS_PORT": str(self.prometheus_port),
            # As fast as ten months pass in some minutes: there is something to see soon.
            "DEMO_EVENTS_PER_SECOND": "1000",
            **images,
        }

    def compose(self, *arguments: str, within_s: float = 300) -> str:
        """What `docker compose <arguments>` prints."""
        return self._engine.run(
            *("compose", "--project-name", PROJECT, "--project-directory", str(CHECKOUT), "--ansi", "never"),
            *("--profile", "demo", "--profile", "observability", *arguments),
            within_s=within_s,
            environ=self._environ,
        )

    def inspect(self, service: str) -> dict[str, Any]:
        """The service's container, also one that has ended, as `docker inspect` shows it."""
        identity = self.compose("ps", "--all", "--quiet", service).split()
        if not identity:
            raise StreamCalibError(f"{service} has no container")
        (found,) = json.loads(self._engine.run("inspect", identity[0]))
        return dict(found)

    def health(self, service: str) -> str:
        """`healthy`, `starting`, `unhealthy`, or how it ended."""
        state = self.inspect(service)["State"]
        return str(state["Health"]["Status"]) if state["Running"] else f"{state['Status']} ({state['ExitCode']})"

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples that Prometheus answers with."""
        return list(self._prometheus(f"query?{urllib.parse.urlencode({'query': expression})}")["result"])

    def targets(self) -> list[dict[str, Any]]:
        """What Prometheus scrapes."""
        return list(self._prometheus("targets?state=active")["activeTargets"])

    def _prometheus(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.prometheus_port}/api/v1/{path}", timeout=10) as answer:
            return dict(json.load(answer)["data"])

    def stop_at_once(self, service: str) -> int:
        """Exit code of a further container of the service that is stopped as soon as it runs."""
        container = self.compose("run", "--detach", "--no-deps", service).split()[-1]
        self._engine.run("stop", "--time", "20", container)
        (found,) = json.loads(self._engine.run("inspect", container))
        self._engine.run("rm", container)
        return int(found["State"]["ExitCode"])

    def logs(self) -> str:
        return self.compose("logs", "--no-color", "--tail", "40")


def until(what: str, look: Callable[[], T], is_so: Callable[[T], bool], within_s: float) -> T:
    """What `look` gives once `is_so` holds for it. Raises AssertionError with the last that it gave."""
    give_up = time.monotonic() + within_s
    while not is_so(seen := look()):
        assert time.monotonic() < give_up, f"{what}: not within {within_s:.0f} s; last seen: {seen}"
        time.sleep(_LOOK_AGAIN_S)
    return seen


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [found.getsockname()[1] for found in sockets]
    for found in sockets:
        found.close()
    return ports
