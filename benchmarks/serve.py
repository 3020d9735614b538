"""calibrate on Kafka, beside bare loops of the same client and beside Quix Streams, on one broker in one run.

    python -m benchmarks.serve [--rounds 3] [--scale 1.0] [--only throughput] [--json FILE]

Starts a broker and a Redis-compatible server of its own. Each loop is a process of its own that reads scores which are
there already, exactly once, 5,000 records a transaction; its speed is read off the broker's time stamps on what it
wrote. Rounds are interleaved, so that what slows the machine slows all; ratios are medians over the rounds.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn
from rich.table import Table

from benchmarks.serve_broker import Broker
from benchmarks.serve_input import MODEL, configuration, plain_map_json, publish_snapshot
from stream_calib.redis_connection import connect
from stream_calib.transport.embedded_server import EmbeddedServer
from stream_calib.windows.redis_state import RedisState
from tests.kafka_broker import KafkaBroker

GOALS = {
    "calibrate_kafka / bare_kafka": 0.80,
    "calibrate_librdkafka / bare_librdkafka": 0.60,
    "calibrate_librdkafka / calibrate_kafka": 2.0,
    "calibrate_librdkafka / quix_interpolate": 2.0,
    "calibrate_librdkafka / quix_predict": 10.0,
}
"""Each to be reached. calibrate_kafka against Quix Streams is measured too, without a goal."""
WATCHED = ("calibrate_kafka / quix_interpolate", "calibrate_kafka / quix_predict")

RECORDS = {
    "bare_kafka": 200_000,
    "calibrate_kafka": 200_000,
    "bare_librdkafka": 600_000,
    "calibrate_librdkafka": 600_000,
    "quix_interpolate": 200_000,
    "quix_predict": 60_000,
}
LATENCY_WAITS_MS = (10, 50, 200)
LATENCY_SECONDS = 12.0
RECORDS_A_TRANSACTION = 5_000
QUIX = "quixstreams==3.28.1"
_SOURCE = "bench-scores"
_LOOP_WITHIN_S = 300.0
_LOOK_EVERY_S = 0.25
_KINDS = {"calibrate_kafka": "kafka", "calibrate_librdkafka": "librdkafka"}
_STAGES = ("fetch", "decode", "apply", "encode", "commit")


class Bench:
    """The servers, the input, and how each loop is started on them."""

    def __init__(self, bootstrap: str, redis_url: str, folder: Path, scale: float) -> None:
        self.broker = Broker(bootstrap)
        self.redis_url = redis_url
        self.folder = folder
        self.records = {name: int(count * scale) for name, count in RECORDS.items()}
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
            command = self.calibrate_command(name, prefix, port, source, max_batch_records=RECORDS_A_TRANSACTION)
        with self.process(command, f"{self._runs:02d}-{name}") as process:
            yield process, group, port

    def calibrate_command(self, name: str, prefix: str, port: int, source: str, **serving: Any) -> list[str]:
        raw = configuration(self.broker.bootstrap, self.redis_url, _KINDS[name], prefix, **serving)
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
        arguments = [self.broker.bootstrap, str(rate), str(LATENCY_SECONDS)]
        read = [sys.executable, "-m", "benchmarks.serve_latency", "read", arguments[0], target, *arguments[1:]]
        write = [sys.executable, "-m", "benchmarks.serve_latency", "write", arguments[0], source, *arguments[1:]]
        port = free_port()
        command = self.calibrate_command(name, prefix, port, source, batch_interval=f"{wait_ms}ms")
        with self.process(command, prefix):
            until_ready(port)
            reader = subprocess.Popen(read, stdout=subprocess.PIPE)
            subprocess.run(write, check=True)
            found, _ = reader.communicate(timeout=_LOOP_WITHIN_S)
        return {key: float(value) for key, value in json.loads(found).items()}


def until_ready(port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
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
    for stage in _STAGES:
        start = f'stream_calib_batch_stage_seconds_sum{{role="calibrate",stage="{stage}"}} '
        seconds = [float(line.removeprefix(start)) for line in lines if line.startswith(start)]
        if seconds:
            found[stage] = 1e6 * seconds[0] / records
    return found


def free_port() -> int:
    import socket

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


def quix_python(folder: Path) -> Path:
    """The Python of an environment with Quix Streams, made once a user."""
    python = folder / "bin" / "python"
    if not (folder / ".installed").exists():
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, QUIX, "scikit-learn", "numpy"], check=True)
        (folder / ".installed").touch()
    return python


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Runs of each loop")] = 3,
    scale: Annotated[float, typer.Option(min=0.05, help="Share of the records; small for a quick look")] = 1.0,
    only: Annotated[Literal["all", "throughput"], typer.Option(help="Leave out the latencies")] = "all",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures there too")] = None,
) -> None:
    """Measures calibrate on Kafka with both clients."""
    console = Console()
    quix = quix_python(Path.home() / ".cache" / "stream-calib" / QUIX.replace("==", "-"))
    with (
        tempfile.TemporaryDirectory(prefix="serve-") as folder,
        KafkaBroker(heap_megabytes=1024) as kafka,
        EmbeddedServer() as server,
        Bar(SpinnerColumn(), TextColumn("{task.description}"), console=console, transient=True) as bar,
    ):
        with connect(server.url) as client:
            publish_snapshot(RedisState(client, MODEL))
        bench = Bench(kafka.bootstrap, server.url, Path(folder), scale)
        bench.fill(bar)
        speeds: dict[str, list[float]] = {name: [] for name in RECORDS}
        task = bar.add_task("")
        for number in range(rounds):
            for name in RECORDS:
                bar.update(task, description=f"round {number + 1} of {rounds}: {name}")
                speeds[name].append(bench.throughput(name, quix))
        measured = {f"{name}_per_second": statistics.median(found) for name, found in speeds.items()}
        ratios = {}
        for ratio in (*GOALS, *WATCHED):
            ours, theirs = ratio.split(" / ")
            ratios[ratio] = statistics.median(a / b for a, b in zip(speeds[ours], speeds[theirs], strict=True))
        latencies = {}
        for name in _KINDS if only == "all" else ():
            for wait_ms in LATENCY_WAITS_MS:
                bar.update(task, description=f"latency of {name} at half load, batches of {wait_ms} ms")
                rate = measured[f"{name}_per_second"] / 2
                latencies[name, wait_ms] = bench.latency(name, wait_ms, rate)
        stages = bench.stage_us
    goals = {r: {"goal": goal, "value": ratios[r], "met": ratios[r] >= goal} for r, goal in GOALS.items()}
    show(console, measured, ratios, stages, latencies)
    if json_file is not None:
        for (name, wait_ms), found in latencies.items():
            measured |= {f"{name}_{wait_ms}ms_latency_{q}_ms": value for q, value in found.items()}
        for name, of_stage in stages.items():
            measured |= {f"{name}_{stage}_us_per_record": value for stage, value in of_stage.items()}
        json_file.write_text(json.dumps({"measured": measured, "ratios": ratios, "goals": goals}, indent=2) + "\n")


def show(
    console: Console,
    measured: Mapping[str, float],
    ratios: Mapping[str, float],
    stages: Mapping[str, Mapping[str, float]],
    latencies: Mapping[tuple[str, int], Mapping[str, float]],
) -> None:
    table = Table("loop", "records/s", title="Exactly once, 5,000 records a transaction, one process, one broker")
    for name, value in measured.items():
        table.add_row(name.removesuffix("_per_second"), f"{value:,.0f}")
    console.print(table)
    table = Table("ratio", "measured", "goal", "")
    for name, value in ratios.items():
        goal = GOALS.get(name)
        verdict = "" if goal is None else "met" if value >= goal else "NOT MET"
        table.add_row(name, f"{value:.2f}", "" if goal is None else f">= {goal:.2f}", verdict)
    console.print(table)
    table = Table("stage of a batch", *stages, title="Microseconds a record")
    for stage in _STAGES:
        table.add_row(stage, *(f"{found[stage]:.2f}" if stage in found else "" for found in stages.values()))
    console.print(table)
    if latencies:
        table = Table(
            "client", "batches", "median", "99 %", "99.9 %", title="Produce to committed output, half load, ms"
        )
        for (name, wait_ms), found in latencies.items():
            table.add_row(name, f"{wait_ms} ms", *(f"{value:.0f}" for value in found.values()))
        console.print(table)


if __name__ == "__main__":
    typer.run(main)
