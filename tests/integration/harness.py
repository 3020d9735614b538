"""A deployment for tests: real role processes over a server of its own, with faults on demand.

Nothing here waits for a fixed time: `until` looks at the state until what it waits for is there, and fails at a
deadline or as soon as a process has ended that should not have.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition

from stream_calib.config import Config
from stream_calib.config_file import load_config, tomllib
from stream_calib.config_identity import configured_keys
from stream_calib.events.contracts import ModelKey
from stream_calib.events.control import clock_record
from stream_calib.transport.embedded_server import EmbeddedServer
from stream_calib.transport.port import Log, Outgoing, TopicPartition
from tests.command_line import command_line
from tests.kafka_broker import KafkaBroker
from tests.kafka_services import fresh_name
from workers.demo import demo_config_file
from workers.deployment import State, connect_state, open_log, state_of
from workers.run import STOP_WITH_PARENT
from workers.status_board import MemberStatus
from workers.topic_setup import create_topics

DEADLINE_S = 120.0
_LOOK_EVERY_S = 0.01
_ASK_BROKERS_EVERY_S = 0.02
_END_WITHIN_S = 10.0
_MARKERS_WITHIN_S = 20.0

TOPICS = ("scores", "labels", "blocks", "calibrated", "dead_letters", "alerts")

Overrides = Mapping[str, Mapping[str, Any]]


@dataclass
class RoleProcess:
    """One running process, in a process group of its own."""

    roles: tuple[str, ...]
    process: subprocess.Popen[bytes]
    output: Path
    expected: bool = True
    """False once the test has ended it: its end is no failure then."""

    def last_words(self) -> str:
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-20:])

    def kill(self) -> None:
        """kill -9, and gone when this returns."""
        self._end(signal.SIGKILL)

    def terminate(self, within_s: float = _END_WITHIN_S) -> int:
        """SIGTERM; the exit code."""
        return self._end(signal.SIGTERM, within_s)

    def pause(self) -> None:
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.killpg(self.process.pid, signal.SIGCONT)

    def _end(self, how: signal.Signals, within_s: float = _END_WITHIN_S) -> int:
        self.expected = False
        if self.process.poll() is None:
            os.killpg(self.process.pid, how)
        return self.process.wait(within_s)


class Deployment:
    """Role processes, and a connection of the test's own to their log and state."""

    def __init__(
        self,
        folder: Path,
        server: EmbeddedServer,
        overrides: Overrides | None = None,
        state_server: EmbeddedServer | None = None,
        state_url: str | None = None,
        kafka: KafkaBroker | None = None,
        text: str | None = None,
    ) -> None:
        """`state_server`: holds the state, where it is not the log's server; `state_url`: where the test started it.
        `kafka`: the log is there, in topics of the deployment's own, and `server` holds only the state. `text`: the
        whole configuration, in place of that of the flights; `state` is that of its first model key."""
        self.server = server
        self.kafka = kafka
        self.state_server = state_server or server
        self.folder = folder
        self.environ = {
            **os.environ,
            "STREAM_CALIB_LOG_URL": server.url,
            "STREAM_CALIB_REDIS_URL": state_url or self.state_server.url,
            STOP_WITH_PARENT: str(os.getpid()),
        }
        self.processes: list[RoleProcess] = []
        self._defaults: Overrides = kafka_settings(kafka) if kafka is not None else {}
        self.config_file = self.write_config("stream-calib.toml", overrides or {}, text)
        self.config: Config = load_config(self.config_file, self.environ)
        self.log: Log = open_log(self.config)
        self.state: State = self.state_of(configured_keys(self.config)[0])
        create_topics(self.log, self.config)

    def write_config(self, name: str, overrides: Overrides, text: str | None = None) -> Path:
        """The flights deployment with other settings, or this text, as a file of its own."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / name
        sections = {**self._defaults, **overrides}
        merged = {name: {**self._defaults.get(name, {}), **overrides.get(name, {})} for name in sections}
        path.write_text(config_text(merged) if text is None else text, encoding="utf-8")
        return path

    def state_of(self, key: ModelKey) -> State:
        """Over a connection of its own; the caller closes it."""
        return state_of(connect_state(self.config), self.config, key)

    # --- processes

    def start(self, *roles: str, module: str = "workers.cli", config_file: Path | None = None) -> RoleProcess:
        """One process that runs the roles."""
        output = self.folder / f"{len(self.processes):02d}-{'-'.join(roles)}.log"
        arguments = [argument for role in roles for argument in ("--role", role)]
        command = [sys.executable, "-m", module, "run", *arguments, "--config", str(config_file or self.config_file)]
        with output.open("wb") as stream:
            process = subprocess.Popen(
                command, env=self.environ, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
            )
        started = RoleProcess(roles, process, output)
        self.processes.append(started)
        return started

    def start_all(self, *roles: str) -> dict[str, RoleProcess]:
        """One process a role, each at work when this returns."""
        started = {role: self.start(role) for role in roles}
        self.until(lambda: all(self.statuses(role) for role in roles), "all roles to be there")
        return started

    def restart(self, killed: RoleProcess, module: str = "workers.cli") -> RoleProcess:
        """Another process in the place of one that has ended."""
        return self.start(*killed.roles, module=module)

    def command(self, *arguments: str, config: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs `stream-calib <arguments>` to its end."""
        named = ["--config", str(self.config_file)] if config else []
        return command_line(*arguments, *named, environ=self.environ)

    def check(self) -> None:
        """Fails when a process has ended that no test has ended."""
        for one in self.processes:
            if one.expected and one.process.poll() is not None:
                raise AssertionError(f"{one.output.name} ended with {one.process.returncode}:\n{one.last_words()}")

    def close(self) -> None:
        """Ends every process, whatever state it is in."""
        for one in self.processes:
            one.kill()
        self.log.close()
        self.state.close()

    # --- waiting

    def until(self, condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
        """The condition's first true value."""
        look_every_s = _LOOK_EVERY_S if self.kafka is None else _ASK_BROKERS_EVERY_S
        deadline = time.monotonic() + deadline_s
        while True:
            if found := condition():
                return found
            self.check()
            if time.monotonic() > deadline:
                words = "\n".join(f"--- {one.output.name}\n{one.last_words()}" for one in self.processes)
                raise AssertionError(f"waited {deadline_s:.0f} s for {what}; {self.fields()}\n{words}")
            time.sleep(look_every_s)

    def until_matured(self, pane: int, deadline_s: float = DEADLINE_S) -> None:
        """Until the pane has matured."""
        self.until(lambda: self.cursor("matured") >= pane, f"pane {pane} to mature", deadline_s)

    def until_served(self, deadline_s: float = DEADLINE_S) -> None:
        """Until calibrate has committed everything on `scores`."""
        self.until(lambda: self.lag("calibrate", self.config.topics.scores) == 0, "calibrate to serve all", deadline_s)

    def until_markers_are_written(self) -> None:
        """Until readers see all that was committed: a broker answers a commit before its markers are in every partition
        of the transaction. A transaction that stays open ends the waiting; what is missing behind it is found later.
        """
        if self.kafka is None:
            return
        topics = self.config.topics
        places = [
            TopicPartition(topic, number)
            for topic in (topics.calibrated, topics.blocks, topics.dead_letters, topics.alerts)
            for number in range(self.log.partitions(topic))
        ]
        reader = KafkaConsumer(bootstrap_servers=self.kafka.bootstrap)
        try:
            written = reader.end_offsets([KafkaPartition(*place) for place in places])
        finally:
            reader.close()
        deadline = time.monotonic() + _MARKERS_WITHIN_S
        while any(self.log.end_offset(place) < written[KafkaPartition(*place)] for place in places):
            if time.monotonic() > deadline:
                return
            time.sleep(_ASK_BROKERS_EVERY_S)

    def cursor(self, name: str) -> int:
        return int(self.state.store.read((name,))[name] or -1)

    def fields(self) -> dict[str, str | None]:
        names = ("first_pane", "closed", "matured", "decided", "open_request", "current", "generation")
        return self.state.store.read(names)

    def statuses(self, role: str) -> list[MemberStatus]:
        return [status for status in self.state.board.all(time.time_ns() // 1_000_000) if status.role == role]

    def committed(self, group: str, topic: str) -> int:
        """Sum of the group's committed positions on the topic."""
        return sum((self.log.group_positions(group, topic) or {}).values())

    def end(self, topic: str) -> int:
        """Sum of the topic's end offsets."""
        return sum(self.log.end_offset(TopicPartition(topic, p)) for p in range(self.log.partitions(topic)))

    def lag(self, group: str, topic: str) -> int:
        return self.end(topic) - self.committed(group, topic)

    # --- feeding

    def write(self, records: Sequence[Outgoing]) -> None:
        """Records for "scores" and "labels" go to the topics that the deployment has for these."""
        names = {purpose: getattr(self.config.topics, purpose) for purpose in TOPICS}
        self.log.produce([record._replace(topic=names.get(record.topic, record.topic)) for record in records])

    def clocks(self, clock_ms: int, *, end: bool = False, topics: Sequence[str] | None = None) -> list[Outgoing]:
        """A control record for each partition of `scores` and `labels`."""
        value, headers = clock_record(clock_ms, end=end)
        return [
            Outgoing(topic, None, value, headers, partition)
            for topic in topics or (self.config.topics.scores, self.config.topics.labels)
            for partition in range(self.log.partitions(topic))
        ]


@contextmanager
def deployment(
    folder: Path,
    overrides: Overrides | None = None,
    *,
    own_state: bool = False,
    state_url: str | None = None,
    kafka: KafkaBroker | None = None,
    text: str | None = None,
) -> Iterator[Deployment]:
    """A deployment over a server of its own, or over two; all of it is ended at the end. `state_url`, `kafka`, `text`:
    as above."""
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer(folder / "server"))
        state_server = stack.enter_context(EmbeddedServer(folder / "state")) if own_state else None
        made = Deployment(folder, server, overrides, state_server, state_url, kafka, text)
        stack.callback(made.close)
        yield made


def kafka_settings(broker: KafkaBroker) -> Overrides:
    """Names of a deployment's own, and times in which tests can see something."""
    return {
        "topics": {purpose: fresh_name(purpose) for purpose in TOPICS},
        "log": {
            "kind": "kafka",
            "bootstrap_servers": broker.bootstrap,
            "group_prefix": fresh_name("deployment"),
            "metadata_max_age": "500ms",
            "session_timeout": "6s",
            "transaction_timeout": "5s",
        },
    }


def config_text(overrides: Overrides) -> str:
    """The flights example as TOML, with other values for some settings: {"windows": {"shards": 2}}."""
    tables: dict[str, dict[str, Any]] = {}
    _collect(tomllib.loads(demo_config_file().read_text(encoding="utf-8")), "", tables)
    for name, values in overrides.items():
        tables.setdefault(name, {}).update(values)
    # Texts, numbers, booleans and lists of them are written alike in JSON and TOML.
    return "\n".join(
        f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
        for name, values in tables.items()
    )


def _collect(table: Mapping[str, Any], name: str, into: dict[str, dict[str, Any]]) -> None:
    for key, value in table.items():
        if isinstance(value, dict):
            _collect(value, f"{name}.{key}" if name else key, into)
        else:
            into.setdefault(name, {})[key] = value
