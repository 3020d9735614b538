"""What the join costs: the whole monitor role in one process, over one Redis-compatible server for the state.

    python benchmarks/join.py                                      # everything, at 2 million pending scores
    python benchmarks/join.py --pending 100000 --events 100000     # a quick look
    python benchmarks/join.py --only join --json join.json         # without Kafka and without a second process

First the join is filled with scores that wait for their labels, which gives the bytes that each needs. Then time goes
on: as many scores come as leave, panes close, mature and are removed. A tenth of the scores comes after its label, 2 %
of scores and of labels come twice. Timed are the role's own steps, from the poll to the commit of matured panes, while
nothing is written to the log; the log has a server of its own.

A script call is timed by the server's clock, so what its thread waits for a core is in it: `redis_waited_for_a_core_s`
of `seconds` says how much a busy machine has added. The server rewrites its append-only file while it is measured.

Then the same, smaller, with the log in Kafka, by each client, beside the embedded log. Last, a backlog is worked off by
one monitor process and by two.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from benchmarks.join_processes import backlog_rate
from benchmarks.join_runs import JoinFigures, measure
from benchmarks.join_stages import STAGES
from stream_calib.transport.embedded_server import EmbeddedServer
from tests.kafka_broker import KafkaBroker


class Goal(NamedTuple):
    value: float
    at_least: bool
    """Else at most."""

    def met(self, value: float) -> bool:
        return value >= self.value if self.at_least else value <= self.value


GOALS = {
    "events_per_second": Goal(100_000, at_least=True),
    "redis_cpu_us_per_event": Goal(6.5, at_least=False),
    "bytes_per_pending_score": Goal(48, at_least=False),
    "longest_script_call_ms": Goal(10, at_least=False),
    "two_processes / one_process": Goal(1.6, at_least=True),
}
CORES_FOR_TWO = 4
"""Two monitors and two servers."""


def main(
    pending: Annotated[int, typer.Option(min=1_000, help="Scores that wait for labels")] = 2_000_000,
    events: Annotated[int, typer.Option(min=1_000, help="Scores and labels that are timed after that")] = 1_000_000,
    shards: Annotated[int, typer.Option(min=1, help="windows.shards")] = 1,
    share: Annotated[float, typer.Option(min=0.01, max=1, help="Size of the runs with Kafka, of the first one")] = 0.1,
    only: Annotated[
        Literal["all", "join", "kafka", "processes"], typer.Option(help="One of the three parts alone")
    ] = "all",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures there too")] = None,
) -> None:
    """Measures the join: events a second, Redis CPU, bytes a pending score, and where the time goes.

    A quick look: --pending 100000 --events 100000 --only join
    """
    console = Console()
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    measured: dict[str, float] = {"cores": float(os.cpu_count() or 1)}
    ratios: dict[str, float] = {}
    tables: list[Table] = []
    with Progress(*columns, console=console, transient=True) as bar:
        if only in ("all", "join"):
            found = _run("embedded", bar, pending, events, shards)
            measured |= figures(found)
            tables.append(stage_table({"embedded": found}))
        if only in ("all", "kafka"):
            fed = _fed(bar, int(share * pending), int(share * events), shards)
            for name, run in fed.items():
                measured |= {f"fed_{name}_{figure}": value for figure, value in figures(run).items()}
            for client in ("kafka", "librdkafka"):
                ratios[f"{client} / embedded"] = fed[client].events_per_second / fed["embedded"].events_per_second
                ratios[f"{client} / embedded, by CPU"] = fed["embedded"].cpu_us_per_event / fed[client].cpu_us_per_event
            tables.append(stage_table(fed))
        if only in ("all", "processes"):
            one, two = (_backlog(bar, count, events, shards) for count in (1, 2))
            measured |= {"one_process_offsets_per_second": one, "two_processes_offsets_per_second": two}
            ratios["two_processes / one_process"] = two / one
    goals = judged({**measured, **ratios})
    console.print(figure_table(measured, ratios, goals))
    for table in tables:
        console.print(table)
    if json_file is not None:
        json_file.write_text(json.dumps({"measured": measured, "ratios": ratios, "goals": goals}, indent=2) + "\n")


def _run(
    kind: Literal["embedded", "kafka", "librdkafka"],
    bar: Progress,
    pending: int,
    events: int,
    shards: int,
    bootstrap: str = "",
) -> JoinFigures:
    task = bar.add_task(f"{kind}: {pending:,} pending, {events:,} events", total=pending + events)
    try:
        if bootstrap:
            return measure(
                kind, bootstrap, pending=pending, events=events, shards=shards, advance=lambda n: bar.advance(task, n)
            )
        with EmbeddedServer() as server:
            return measure(
                kind, server.url, pending=pending, events=events, shards=shards, advance=lambda n: bar.advance(task, n)
            )
    finally:
        bar.remove_task(task)


def _fed(bar: Progress, pending: int, events: int, shards: int) -> dict[str, JoinFigures]:
    found = {"embedded": _run("embedded", bar, pending, events, shards)}
    with KafkaBroker(heap_megabytes=1024) as broker:
        found["kafka"] = _run("kafka", bar, pending, events, shards, broker.bootstrap)
        found["librdkafka"] = _run("librdkafka", bar, pending, events, shards, broker.bootstrap)
    return found


def _backlog(bar: Progress, processes: int, events: int, shards: int) -> float:
    task = bar.add_task(f"a backlog of {events:,} for {processes} monitor(s)", total=events)
    try:
        return backlog_rate(processes, events=events, shards=shards, advance=lambda n: bar.advance(task, n))
    finally:
        bar.remove_task(task)


def figures(found: JoinFigures) -> dict[str, float]:
    """All of a run by name, the stages in microseconds an event."""
    named = {
        "pending_scores": float(found.pending_scores),
        "bytes_per_pending_score": found.bytes_per_pending_score,
        "fill_scores_per_second": found.fill_scores_per_second,
        "fill_redis_cpu_us_per_score": found.fill_redis_cpu_us_per_score,
        "events": float(found.events),
        "events_per_second": found.events_per_second,
        "monitor_cpu_us_per_event": 1e6 * found.monitor_cpu_s / found.events,
        "redis_cpu_us_per_event": 1e6 * found.redis.cpu_s / found.events,
        "events_per_second_by_cpu": 1e6 / found.cpu_us_per_event,
        "script_calls": float(found.redis.scripts),
        "longest_script_call_ms": found.script_calls.longest_ms,
        "one_script_call_in_1_000_ms": found.script_calls.one_in_1_000_ms,
        "script_calls_over_10_ms": float(found.script_calls.over_10_ms),
        "redis_waited_for_a_core_s": found.redis.waited_s,
        "seconds": found.seconds,
        "panes_matured": float(found.panes_matured),
    }
    return named | {
        f"stage_{stage.replace(' ', '_')}_us_per_event": 1e6 * took.wall_s / found.events
        for stage, took in found.stages.items()
    }


def judged(values: Mapping[str, float]) -> dict[str, dict[str, float | bool]]:
    """Goal, value, met for each goal whose value was measured."""
    return {
        name: {"goal": goal.value, "value": values[name], "met": goal.met(values[name])}
        for name, goal in GOALS.items()
        if name in values
    }


def figure_table(
    measured: Mapping[str, float], ratios: Mapping[str, float], goals: Mapping[str, Mapping[str, float | bool]]
) -> Table:
    table = Table("figure", title="The join: the whole monitor role, one process, one server for the state")
    table.add_column("measured", justify="right")
    table.add_column("goal", justify="right")
    table.add_column("")
    for name, value in {**measured, **ratios}.items():
        if name.startswith(("stage_", "fed_")) and not name.endswith("_events_per_second"):
            continue
        goal, verdict = "", ""
        if name in goals:
            goal = f"{'>=' if GOALS[name].at_least else '<='} {GOALS[name].value:,g}"
            verdict = "met" if goals[name]["met"] else "NOT MET"
            if "two_processes" in name and verdict != "met" and measured["cores"] < CORES_FOR_TWO:
                verdict += f": {measured['cores']:.0f} cores, two monitors and two servers want {CORES_FOR_TWO}"
        table.add_row(name, f"{value:,.0f}" if value >= 1_000 else f"{value:.2f}", goal, verdict)
    return table


def stage_table(runs: Mapping[str, JoinFigures]) -> Table:
    """Wall time, and of it the thread's own CPU; the rest is waiting for a server, or for a core."""
    table = Table("stage of a batch", title="Microseconds an event, wall (own CPU)")
    for name in runs:
        table.add_column(name, justify="right")
    for stage in STAGES:
        cells = [(run.stages[stage], run.events) for run in runs.values()]
        table.add_row(stage, *(f"{1e6 * t.wall_s / n:.2f} ({1e6 * t.own_cpu_s / n:.2f})" for t, n in cells))
    whole = [(run.seconds, sum(t.own_cpu_s for t in run.stages.values()), run.events) for run in runs.values()]
    table.add_row("all", *(f"{1e6 * wall / n:.2f} ({1e6 * cpu / n:.2f})" for wall, cpu, n in whole))
    return table


if __name__ == "__main__":
    typer.run(main)
