"""The service of `soak.py`: servers, the four roles, source and reader as processes, and samples of all of them."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import redis

from benchmarks.serve_runs import toml
from benchmarks.soak_figures import Sample
from stream_calib.alerts.model import make_alert
from stream_calib.alerts.outbox import LIST as OUTBOX
from stream_calib.config import Config
from stream_calib.redis_connection import connect
from stream_calib.snapshot.model import sequence_of
from stream_calib.transport.embedded import EmbeddedLog
from stream_calib.transport.embedded_server import EmbeddedServer
from stream_calib.transport.port import Log, TopicPartition
from stream_calib.windows.state_store import Commit
from tests.kafka_broker import KafkaBroker
from workers.demo import RoleProcesses, role_processes
from workers.deployment import State, open_log, open_state
from workers.input_lags import input_lags
from workers.topic_setup import create_topics

LogKind = Literal["embedded", "kafka", "librdkafka"]
_FIRST_EVENT_MS = 1_700_000_000_000
PANE_HOURS = 6
_OLD_ALERTS, _ALERTS_A_COMMIT = 2_000, 250
_PREFIX = "soak-"
_TRIAL_S = 20.0
_TRIAL_FROM, _TRIAL_TO = 0.9, 0.05
"""What is left of the backlog while the trial is timed: not the start of the roles, nor the last transactions."""
_DRAINED_WITHIN_S = 300.0
_LOOK_EVERY_S = 0.1


def configuration(kind: LogKind, log_url: str, state_url: str) -> dict[str, Any]:
    """Panes of six hours and refits every day or two, in historical event time; everything in windows of days, and what
    is kept for later no longer than refits need it: so that all that may grow is full within minutes."""
    names = ("scores", "labels", "calibrated", "blocks", "dead_letters", "alerts")
    where = {"url": log_url} if kind == "embedded" else {"bootstrap_servers": log_url}
    return {
        "model": {"name": "soak", "version": "1"},
        "topics": {name: f"{_PREFIX}{name}" for name in names},
        "log": {"kind": kind, "group_prefix": "soak", **where},
        "redis": {"url": state_url},
        "scores": {
            "time": {"path": "ts"},
            "attributes": {"carrier": "carrier", "origin": "origin"},
            "intersections": [["carrier", "origin"]],
        },
        "labels": {"time": {"path": "ts"}},
        "serving": {"clock_records": "off"},
        "windows": {
            "pane": f"{PANE_HOURS}h",
            "horizon": "12h",
            "shards": 1,
            "max_clock_skew": "off",
            "max_input_skew": "2d",
            "idle_timeout": "off",
        },
        "refit": {"max_age": "2d", "level_cadence": "12h", "min_rows": 5_000, "min_new_labels": 1_000},
        "retention": {"archive": "32d", "publications": 20},
    }


class Service:
    """A deployment whose roles run once there is a first load."""

    def __init__(
        self,
        config: Config,
        config_file: Path,
        log: Log,
        state: State,
        client: redis.Redis,
        state_server: EmbeddedServer,
        running: ExitStack,
    ) -> None:
        """`running`: ends what is started here."""
        self.config, self._config_file = config, config_file
        self._log, self._state, self._client, self._running = log, state, client, running
        self._pids = {"state's server": state_server.pid}
        self._roles: RoleProcesses | None = None
        self._latency = (math.nan, math.nan)
        self._first_ms = _FIRST_EVENT_MS

    def fill_outbox(self) -> None:
        """Alerts of before, as many as an outbox ever holds: at some two a pane it would be full after three quarters
        of an hour."""
        key = self._state.model_key
        for first in range(0, _OLD_ALERTS, _ALERTS_A_COMMIT):
            old = [
                make_alert(
                    key,
                    self._state.generation,
                    "refit_published",
                    "close",
                    pane=number,
                    since_ms=0,
                    diagnosis="of before this run; as long as those that are to come",
                    evidence={"version": f"{number:06d}-{'0' * 12}"},
                ).encode()
                for number in range(first, first + _ALERTS_A_COMMIT)
            ]
            self._state.store.commit(Commit(appends={OUTBOX: old}))

    def start(self) -> None:
        """The roles, each in a process of its own."""
        roles = role_processes(self._config_file, os.environ, self._config_file.parent / "logs")
        self._roles = self._running.enter_context(roles)
        self._pids = {name: process.pid for name, process in self._roles.processes.items()} | self._pids

    def lag(self) -> int:
        """Scores that calibrate has not committed, and offsets that monitor has not applied."""
        return sum(self._lags().values())

    def _lags(self) -> dict[str, int]:
        found = input_lags(self._log, self.config, [self._state.shards.progress()])
        return {f"{one.role}: {one.topic.removeprefix(_PREFIX)}": one.total for one in found}

    def trial(self, scores: int, speed: float) -> float:
        """Scores a second, each with its label, that the service works off from a backlog; the roles are started for
        it. `speed`: event seconds in a second of load."""
        with self._traffic("burst", scores / _TRIAL_S, _TRIAL_S, speed) as source:
            self._until(lambda: source.poll() is not None, "the trial to be written")
            if source.returncode:
                raise RuntimeError(f"the source ended with {source.returncode}: {self._words('burst')}")
        backlog = self.lag()
        self.start()
        self._until(lambda: self.lag() < _TRIAL_FROM * backlog, "the roles to be at work")
        began = time.monotonic()
        self._until(lambda: self.lag() < _TRIAL_TO * backlog, "the trial to be worked off")
        return (_TRIAL_FROM - _TRIAL_TO) * scores / (time.monotonic() - began)

    def soak(self, rate: float, seconds: float, speed: float, every_s: float, tell: Callable[[Sample], None]) -> None:
        """Load for so long, with a sample every while."""
        if self._roles is None:
            self.start()
        with (
            self._process("read", str(every_s)) as reader,
            self._traffic("write", rate, seconds, speed) as source,
        ):
            threading.Thread(target=self._listen, args=(reader,), daemon=True).start()
            assert source.stdout is not None
            source.stdout.readline()
            began = due = time.monotonic()
            while source.poll() is None:
                self._check()
                if time.monotonic() >= due:
                    due += every_s
                    tell(self._sample(time.monotonic() - began))
                    self._trim()
                time.sleep(_LOOK_EVERY_S)
            if source.returncode:
                raise RuntimeError(f"the source ended with {source.returncode}: {self._words('write')}")

    def _check(self) -> None:
        if self._roles is not None:
            self._roles.check()

    @contextmanager
    def _traffic(self, what: str, rate: float, seconds: float, speed: float) -> Iterator[subprocess.Popen[bytes]]:
        with self._process(what, str(rate), str(seconds), str(self._first_ms), str(speed)) as process:
            yield process
        self._first_ms += int(1_000 * speed * seconds) + 1

    @contextmanager
    def _process(self, what: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "benchmarks.soak_traffic", what, str(self._config_file), *arguments]
        with (self._config_file.parent / f"{what}.log").open("wb") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def _words(self, what: str) -> str:
        return (self._config_file.parent / f"{what}.log").read_text(errors="replace")[-2_000:]

    def _listen(self, reader: subprocess.Popen[bytes]) -> None:
        assert reader.stdout is not None
        for line in reader.stdout:
            found = json.loads(line)
            self._latency = (found["p50_ms"], found["p99_ms"])

    def _sample(self, seconds: float) -> Sample:
        fields = self._state.store.read(("current", "first_pane", "matured"))
        p50, p99 = self._latency
        return Sample(
            seconds=seconds,
            resident_bytes={name: _resident_bytes(pid) for name, pid in self._pids.items()},
            lags=self._lags(),
            latency_p50_ms=p50,
            latency_p99_ms=p99,
            redis_used_bytes=int(self._client.info("memory")["used_memory"]),
            snapshot=fields["current"] or "",
            publications=sequence_of(fields["current"]) if fields["current"] else 0,
            matured_panes=int(fields["matured"] or 0) - int(fields["first_pane"] or 0) + 1,
        )

    def _trim(self) -> None:
        """Kafka's retention, for the embedded log: up to the slowest group."""
        if isinstance(self._log, EmbeddedLog):
            topics = self.config.topics
            for topic in (topics.scores, topics.labels, topics.blocks, topics.calibrated):
                for number in range(self._log.partitions(topic)):
                    partition = TopicPartition(topic, number)
                    self._log.trim(partition, self._log.end_offset(partition))

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        give_up = time.monotonic() + _DRAINED_WITHIN_S
        while not condition():
            self._check()
            if time.monotonic() > give_up:
                raise RuntimeError(f"waited {_DRAINED_WITHIN_S:.0f} s for {what}; the lag is {self.lag():,}")
            time.sleep(_LOOK_EVERY_S)


def _resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return 1_024 * int(line.split()[1])
    raise RuntimeError(f"process {pid} has ended")


@contextmanager
def running_service(kind: LogKind) -> Iterator[Service]:
    """Starts the servers, and ends everything."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        if kind == "embedded":
            log_url = stack.enter_context(EmbeddedServer()).url
        else:
            log_url = stack.enter_context(KafkaBroker(heap_megabytes=1024)).bootstrap
        state_server = stack.enter_context(EmbeddedServer())
        raw = configuration(kind, log_url, state_server.url)
        config = Config.model_validate(raw)
        config_file = folder / "soak.toml"
        config_file.write_text(toml(raw), encoding="utf-8")
        log = stack.enter_context(open_log(config))
        create_topics(log, config)
        state = stack.enter_context(closing(open_state(config)))
        client = stack.enter_context(closing(connect(state_server.url)))
        running = stack.enter_context(ExitStack())
        service = Service(config, config_file, log, state, client, state_server, running)
        service.fill_outbox()
        yield service
