"""How each loop of `serve.py` is started and watched: what it reads, its process, and when it has committed all."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import Progress as Bar

from benchmarks.serve_broker import Broker
from benchmarks.serve_input import configuration, plain_map_json

KINDS = {"calibrate_kafka": "kafka", "calibrate_librdkafka": "librdkafka"}
"""Loops that are calibrate itself -> `log.kind`."""
STAGES = ("fetch", "decode", "apply", "encode", "commit")

_LATENCY_SECONDS = 12.0
_RECORDS_A_TRANSACTION = 5_000
_SOURCE = "bench-scores"
_LOOP_WITHIN_S = 300.0
_LOOK_EVERY_S = 0.25


class Bench:
    """The servers, the input, and how each loop is started on them."""

    def __init__(self, bootstrap: str, redis_url: str, folder: Path, records: Mapping[str, int]) -> None:
        """`records`: loop -> how many it is given."""
        self.broker = Broker(bootstrap)
        self.redis_url = redis_url
        self.folder = folder
        self.records = dict(records)
        self.stage_us: dict[str, dict[str, float]] = {}
        self._runs = 0

    def throughput(self, name: str, quix: Path) -> float:
        """Records a second of one run of one loop."""
        self._runs += 1
        target = f"bench-{self._runs}-calibrated"
        self.broker.create(target)
        source = self._source(name)
        with self._running(name, source, target, quix) as (process, group, port):
            self._until_committed(process, group, source, self.records[name])
            if port:
                self.stage_us[name] = stage_times(port, self.records[name])
        seen = self.broker.progress(target)
        self.broker.delete(target)
        return 1000 * (self.records[name] - seen.before) / (seen.last_ms - seen.first_ms)

    def _source(self, name: str) -> str:
        return f"{_SOURCE}-{self.records[name]}"

    def fill(self, bar: Bar) -> None:
        for count in sorted(set(self.records.values())):
            task = bar.add_task(f"writing {count:,} scores", total=count)
            self.broker.create(f"{_SOURCE}-{count}")
            self.broker.fill(f"{_SOURCE}-{count}", count, lambda n, task=task: bar.advance(task, n))  # type: ignore[misc]  # mypy does not see the default of a lambda
            bar.remove_task(task)

    @contextmanager
    def _running(
        self, name: str, source: str, target: str, quix: Path
    ) -> Iterator[tuple[subprocess.Popen[bytes], str, int]]:
        """The loop as a process -> (it, its consumer group, its metrics port or 0)."""
        here, bootstrap = Path(__file__).parent, self.broker.bootstrap
        group, port = target, 0
        if name.startswith("bare_"):
            client = {"bare_kafka": "kafka-python", "bare_librdkafka": "librdkafka"}[name]
            command = [sys.executable, str(here / "serve_loops.py"), client, bootstrap, source, target]
        elif name.startswith("quix_"):
            how = name.removeprefix("quix_")
            command = [str(quix), str(here / "serve_quix.py"), how, bootstrap, source, target, plain_map_json()]
        else:
            prefix = target.removesuffix("-calibrated")
            self.broker.create(f"{prefix}-blocks", f"{prefix}-dead_letters")
            group, port = f"{prefix}.calibrate", free_port()
            command = self.calibrate_command(name, prefix, port, source, max_batch_records=_RECORDS_A_TRANSACTION)
        with self.process(command, f"{self._runs:02d}-{name}") as process:
            yield process, group, port

    def calibrate_command(self, name: str, prefix: str, port: int, source: str, **serving: Any) -> list[str]:
        raw = configuration(self.broker.bootstrap, self.redis_url, KINDS[name], prefix, **serving)
        raw["topics"]["scores"] = source
        raw["http"] = {"listen": f"127.0.0.1:{port}"}
        path = self.folder / f"{prefix}.toml"
        path.write_text(toml(raw), encoding="utf-8")
        return [sys.executable, "-m", "workers.cli", "run", "--role", "calibrate", "--config", str(path)]

    @contextmanager
    def process(self, command: list[str], name: str) -> Iterator[subprocess.Popen[bytes]]:
        output = self.folder / f"{name}.log"
        with output.open("wb") as stream:
            process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            yield process
        except RuntimeError as error:
            raise RuntimeError(f"{error}\n{output.read_text(errors='replace')[-2_000:]}") from error
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _until_committed(self, process: subprocess.Popen[bytes], group: str, topic: str, records: int) -> None:
        deadline = time.monotonic() + _LOOP_WITHIN_S
        while self.broker.committed(group, topic) < records:
            if process.poll() is not None:
                raise RuntimeError(f"{group} ended with {process.returncode}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{group} did not commit {records:,} records within {_LOOP_WITHIN_S:.0f} s")
            time.sleep(_LOOK_EVERY_S)

    def latency(self, name: str, wait_ms: int, rate: float) -> dict[str, float]:
        """Percentiles in milliseconds with batches of `wait_ms` at `rate` scores a second."""
        self._runs += 1
        prefix = f"bench-{self._runs}"
        source, target = f"{prefix}-scores", f"{prefix}-calibrated"
        self.broker.create(source, target, f"{prefix}-blocks", f"{prefix}-dead_letters")
        arguments = [self.broker.bootstrap, str(rate), str(_LATENCY_SECONDS)]
        read = [sys.executable, "-m", "benchmarks.serve_latency", "read", arguments[0], target, *arguments[1:]]
        write = [sys.executable, "-m", "benchmarks.serve_latency", "write", arguments[0], source, *arguments[1:]]
        port = free_port()
        command = self.calibrate_command(name, prefix, port, source, batch_interval=f"{wait_ms}ms")
        with self.process(command, prefix) as process:
            until_ready(process, port)
            reader = subprocess.Popen(read, stdout=subprocess.PIPE)
            subprocess.run(write, check=True)
            found, _ = reader.communicate(timeout=_LOOP_WITHIN_S)
        return {key: float(value) for key, value in json.loads(found).items()}


def until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        if process.poll() is not None:
            raise RuntimeError(f"calibrate ended with {process.returncode} before it was ready")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_LOOK_EVERY_S)


def stage_times(port: int, records: int) -> dict[str, float]:
    """Microseconds a record of each stage, from the process's own metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    found = {}
    for stage in STAGES:
        start = f'stream_calib_batch_stage_seconds_sum{{role="calibrate",stage="{stage}"}} '
        seconds = [float(line.removeprefix(start)) for line in lines if line.startswith(start)]
        if seconds:
            found[stage] = 1e6 * seconds[0] / records
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def toml(raw: Mapping[str, Any], path: str = "") -> str:
    """Tables of texts, numbers, booleans and lists of them, which JSON and TOML write alike."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in raw.items() if not isinstance(value, dict)]
    parts = [f"[{path}]\n" if path else "", *(line + "\n" for line in lines)]
    for key, value in raw.items():
        if isinstance(value, dict):
            parts.append(toml(value, f"{path}.{key}" if path else key))
    return "".join(parts)


def quix_python(folder: Path, requirement: str) -> Path:
    """The Python of an environment with Quix Streams, made once a user."""
    python = folder / "bin" / "python"
    if not (folder / ".installed").exists():
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, requirement, "scikit-learn", "numpy"], check=True)
        (folder / ".installed").touch()
    return python
