"""calibrate on Kafka, beside bare loops of the same client and beside Quix Streams, on one broker in one run.

    python benchmarks/serve.py [--rounds 3] [--scale 1.0] [--only throughput] [--json FILE]

Starts a broker and a Redis-compatible server of its own. Each loop is a process of its own that reads scores which are
there already, exactly once, 5,000 records a transaction; its speed is read off the broker's time stamps on what it
wrote. Rounds are interleaved, so that what slows the machine slows all; ratios are medians over the rounds.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn
from rich.table import Table

from benchmarks.serve_input import MODEL, publish_snapshot
from benchmarks.serve_runs import KINDS, STAGES, Bench, quix_python
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
QUIX = "quixstreams==3.28.1"


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Runs of each loop")] = 3,
    scale: Annotated[float, typer.Option(min=0.05, help="Share of the records; small for a quick look")] = 1.0,
    only: Annotated[Literal["all", "throughput"], typer.Option(help="Leave out the latencies")] = "all",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures there too")] = None,
) -> None:
    """Measures calibrate on Kafka with both clients."""
    console = Console()
    quix = quix_python(Path.home() / ".cache" / "stream-calib" / QUIX.replace("==", "-"), QUIX)
    with (
        tempfile.TemporaryDirectory(prefix="serve-") as folder,
        KafkaBroker(heap_megabytes=1024) as kafka,
        EmbeddedServer() as server,
        Bar(SpinnerColumn(), TextColumn("{task.description}"), console=console, transient=True) as bar,
    ):
        with connect(server.url) as client:
            publish_snapshot(RedisState(client, MODEL))
        bench = Bench(
            kafka.bootstrap,
            server.url,
            Path(folder),
            {name: int(count * scale) for name, count in RECORDS.items()},
        )
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
        for name in KINDS if only == "all" else ():
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
    for stage in STAGES:
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
