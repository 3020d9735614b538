"""A real Apache Kafka broker for tests: a local process over its own jars (kafka_jars.py).

The process is held by a shell that waits on a pipe from this one and ends the broker when the pipe closes, so it ends
also when the tests are interrupted or killed.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from stream_calib.errors import StreamCalibError
from tests.kafka_jars import KAFKA_VERSION, find_java, kafka_jars

PLAINTEXT = "PLAINTEXT"
_CONTROLLER = "CONTROLLER"
_START_DEADLINE_S = 240.0
_STOP_DEADLINE_S = 30.0
_LOOK_AGAIN_S = 0.02
_STARTED = b"Kafka Server started"

_HOLDER = """
directory=$1
shift
sh -c 'echo $$; exec "$@" >>"$0/broker.log" 2>&1' "$directory" "$@" &
broker=$!
exec >&-
read -r _ || orphaned=1
[ -z "$orphaned" ] || kill -KILL $broker 2>/dev/null
wait $broker
[ -z "$orphaned" ] || rm -rf -- "$directory"
"""
# A line on its input says that the broker has been ended; the mere end of file means that nobody is left to do it.

TEST_BROKER_PROPERTIES = {
    "auto.create.topics.enable": "false",
    "background.threads": "2",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "500",
    "num.io.threads": "2",
    "num.network.threads": "2",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
}
"""What lets one small broker be all there is, and lets tests see within a second what else takes minutes."""


class KafkaBroker:
    """One broker (and its controller) over one data directory. Use as a context manager, or `start` and `close`.

    `bootstrap` and the data stay the same over `kill`, `stop` and `start`, so clients reconnect by themselves.
    """

    def __init__(
        self,
        *,
        properties: Mapping[str, str] | None = None,
        listeners: Sequence[str] = (),
        heap_megabytes: int = 384,
    ) -> None:
        """`listeners`: protocols spoken beside PLAINTEXT (SSL, SASL_PLAINTEXT, SASL_SSL), see `address`.
        `properties`: broker properties over TEST_BROKER_PROPERTIES."""
        self._directory = Path(tempfile.mkdtemp(prefix="sc-kafka-"))
        self._heap_megabytes = heap_megabytes
        self._ports = dict(zip((PLAINTEXT, _CONTROLLER, *listeners), free_ports(2 + len(listeners)), strict=True))
        self._properties = {**TEST_BROKER_PROPERTIES, **self._network(), **(properties or {})}
        self._holder: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._owner = os.getpid()

    @property
    def bootstrap(self) -> str:
        """host:port of the listener without TLS or authentication."""
        return self.address(PLAINTEXT)

    def address(self, protocol: str) -> str:
        """host:port of the listener that speaks `protocol`."""
        return f"127.0.0.1:{self._ports[protocol]}"

    @property
    def pid(self) -> int:
        """Process id of the broker, 0 when it does not run."""
        return self._pid

    @property
    def log_text(self) -> str:
        """What the broker has logged so far."""
        log = self._directory / "broker.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def __enter__(self) -> KafkaBroker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts the broker and returns when it serves. Raises StreamCalibError with its log when it does not."""
        if self._holder is not None:
            raise StreamCalibError(f"the test broker at {self.bootstrap} runs already")
        atexit.register(self.close)
        settings = self._directory / "server.properties"
        if not settings.exists():
            settings.write_text("".join(f"{name}={value}\n" for name, value in self._properties.items()))
            self._format(settings)
        self._launch(self._java("kafka.Kafka", str(settings)))

    def stop(self) -> None:
        """Ends the broker in good order: partitions are handed over, logs are closed. `start` brings it back."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends the broker at once, as a crash would, and returns when it is gone. `start` brings it back."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Ends the broker in good order and starts it again at the same address on the same data."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """The broker stands still: connections stay open, nothing is answered, until `resume`."""
        os.kill(self._pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._pid, signal.SIGCONT)

    def close(self) -> None:
        """Ends the broker and removes its data."""
        atexit.unregister(self.close)
        self._end(signal.SIGKILL)
        if os.getpid() == self._owner:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _network(self) -> dict[str, str]:
        addresses = {name: f"{name}://{self.address(name)}" for name in self._ports}
        advertised = [address for name, address in addresses.items() if name != _CONTROLLER]
        protocols = [f"{name}:{PLAINTEXT if name == _CONTROLLER else name}" for name in self._ports]
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": self.address(_CONTROLLER),
            "controller.listener.names": _CONTROLLER,
            "inter.broker.listener.name": PLAINTEXT,
            "listeners": ",".join(addresses.values()),
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": ",".join(protocols),
            "log.dirs": str(self._directory / "data"),
        }

    def _java(self, main: str, *arguments: str) -> list[str]:
        classes = os.pathsep.join(str(jar) for jar in kafka_jars())
        return [
            *(str(find_java()), f"-Xmx{self._heap_megabytes}m", "-XX:+UseSerialGC", "-Djava.awt.headless=true"),
            *("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true"),
            "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
            *("-cp", classes, main, *arguments),
        ]

    def _format(self, settings: Path) -> None:
        cluster = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=").replace("-", "A")
        command = self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings), "--standalone")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            settings.unlink()
            raise StreamCalibError(f"the test broker's directory cannot be formatted: {done.stdout}{done.stderr}")

    def _launch(self, command: list[str]) -> None:
        logged = len(self.log_text.encode())
        self._holder = subprocess.Popen(
            ["sh", "-c", _HOLDER, "holder", str(self._directory), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        assert self._holder.stdout is not None
        self._pid = int(self._holder.stdout.readline())
        self._owner = os.getpid()
        try:
            self._wait_until_started(logged)
        except BaseException:
            self._end(signal.SIGKILL)
            raise

    def _wait_until_started(self, logged: int) -> None:
        deadline = time.monotonic() + _START_DEADLINE_S
        while _STARTED not in self.log_text.encode()[logged:]:
            if time.monotonic() > deadline or not self._runs():
                words = "\n".join(self.log_text.splitlines()[-25:])
                raise StreamCalibError(f"the test broker at {self.bootstrap} did not come up: {words}")
            time.sleep(_LOOK_AGAIN_S)

    def _runs(self) -> bool:
        """Whether the process is there and has not ended: the holder reaps it, so an ended one is gone at once."""
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return False
        return True

    def _end(self, how: signal.Signals) -> None:
        holder, self._holder, self._pid, pid = self._holder, None, 0, self._pid
        if holder is None or os.getpid() != self._owner:
            return  # not running, or a forked child's copy of a parent's broker
        assert holder.stdin is not None
        assert holder.stdout is not None
        with suppress(ProcessLookupError):  # it may have ended by itself
            os.kill(pid, how)
            os.kill(pid, signal.SIGCONT)  # a paused one takes no signal but SIGKILL
        with suppress(BrokenPipeError):  # somebody killed the holder
            holder.stdin.write(b"\n")
        holder.stdin.close()
        holder.stdout.close()
        try:
            holder.wait(_STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            os.killpg(holder.pid, signal.SIGKILL)
            holder.wait()


def description() -> str:
    """One line on the local broker: what would run. Raises StreamCalibError where no Java is to be had."""
    return f"Apache Kafka {KAFKA_VERSION} as a local process of {find_java()}"


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
