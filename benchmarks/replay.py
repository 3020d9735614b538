"""What a replay costs: exactly from Parquet and from Kafka, as cells counted by DuckDB, in memory, and beside others.

    python -m benchmarks.replay                                    # everything
    python -m benchmarks.replay --only exact --json exact.json     # one part alone
    python -m benchmarks.replay --scale 0.1                        # a quick look

The exact replay reads scores and labels, hashes ids, puts them in order, joins, closes and matures panes, on one core;
DuckDB joins and counts the same files on two. Rates are by CPU seconds, of all threads of the process, which is what
the cores would do that nothing else uses; those by the clock are beside them, and so is the load of the machine. From
Kafka, a bare loop that polls the same records and drops them is measured in turn with the replay, each in processes of
its own; by the clock, from the start of the replay's processes on. Policies are run over the cells of the packaged
flights, in two processes, with all fits in it. Memory is that of a process of its own while events go through it.
Evidently and NannyML have environments that are made once; one report a day of the same file, by CPU seconds, on one
thread.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from benchmarks.drift_report import Goal, Report
from benchmarks.replay_kafka import Rate, beside_bare_loop
from benchmarks.replay_memory import SAMPLES, growth_percent, watch
from benchmarks.replay_peers import compared
from benchmarks.replay_policies import (
    OTHER_FITS,
    PROCESSES,
    SAME_FITS,
    PoliciesTook,
    flights_history,
    policies_of,
    timed,
)
from benchmarks.replay_runs import (
    Took,
    as_one_table,
    counted_by_duckdb,
    counted_of_one_table,
    exact,
    feed_alone,
)
from benchmarks.replay_traffic import Files, write_files
from stream_calib.backtest.history import CellHistory
from stream_calib.garbage_collection import collect_seldom

EXACT = Goal(500_000, at_least=True)
CELLS = Goal(3_000_000, at_least=True)
KAFKA = Goal(0.75, at_least=True)
MEMORY = Goal(5.0, at_least=False)
POLICIES_OF_SAME_FITS, POLICIES_OF_OTHER_FITS = Goal(100, at_least=True), Goal(15, at_least=True)

HOURS, SCORES_AN_HOUR = 240, 20_000
"""9.5 million events."""
KAFKA_EVENTS = 4_000_000
ROUNDS = 3
MEMORY_EVENTS, MEMORY_SCORES_AN_HOUR = 50_000_000, 50_000
PEER_DAYS, PEER_SCORES_AN_HOUR = 12, 8_000
CORES = 2


class Bar:
    """Shows how far the part is that is going on."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def begin(self, what: str, total: int | None = None) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(what, total=total)

    def add(self, n: int) -> None:
        assert self._task is not None
        self._progress.advance(self._task, n)

    def at(self, done: int, total: int | None = None) -> None:
        assert self._task is not None
        self._progress.update(self._task, completed=done, total=total)

    def reached(self, done: float) -> None:
        assert self._task is not None
        self._progress.update(self._task, completed=done)


def main(
    only: Annotated[
        Literal["all", "exact", "cells", "kafka", "policies", "memory", "peers"], typer.Option(help="One part alone")
    ] = "all",
    scale: Annotated[float, typer.Option(min=0.01, help="Share of the events; small for a quick look")] = 1.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures there too")] = None,
) -> None:
    """Measures replays: events a second, memory, and the same figures by other packages."""
    console, report = Console(), Report()
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    report.measured["cores"] = float(os.cpu_count() or 1)
    collect_seldom()
    with Progress(*columns, console=console, transient=True) as progress:
        bar = Bar(progress)
        if only in ("all", "exact", "cells"):
            with tempfile.TemporaryDirectory(prefix="replay-") as folder:
                per_hour = max(int(scale * SCORES_AN_HOUR), 100)
                bar.begin("writing Parquet", HOURS)
                files = write_files(Path(folder), HOURS, per_hour, bar.add)
                history = _exact(report, bar, files) if only in ("all", "exact") else None
                if only in ("all", "cells"):
                    _cells(report, bar, files, history)
        if only in ("all", "kafka"):
            _kafka(report, bar, int(scale * KAFKA_EVENTS))
        if only in ("all", "policies"):
            _policies(report, bar, scale)
        if only in ("all", "memory"):
            _memory(report, bar, int(scale * MEMORY_EVENTS), max(int(scale * MEMORY_SCORES_AN_HOUR), 1_000))
        if only in ("all", "peers"):
            _peers(report, bar, max(int(scale * PEER_SCORES_AN_HOUR), 100))
    report.print(console)
    if json_file is not None:
        json_file.write_text(json.dumps(report.document(), indent=2) + "\n")


def _exact(report: Report, bar: Bar, files: Files) -> CellHistory:
    bar.begin("exact replay of Parquet")
    found, history = exact(files, bar.at)
    bar.begin("reading Parquet alone")
    rows = {"exact replay": found, "of that reading, hashing and order": feed_alone(files)}
    report.tables.append(_rates("Exact replay from Parquet, one core", rows, 1))
    report.measured |= _named("exact", found, 1)
    report.judge("exact replay from Parquet, events per second on one core", found.per_cpu_second(), EXACT)
    return history


def _cells(report: Report, bar: Bar, files: Files, replayed: CellHistory | None) -> None:
    rows: dict[str, Took] = {}
    table = files.scores.parent / "log.parquet"
    bar.begin("scores with their labels as one table")
    as_one_table(files, table)
    for buckets in ("engine", "exact"):
        bar.begin(f"DuckDB, unit buckets: {buckets}")
        two = [counted_by_duckdb(files, buckets, CORES) for _ in range(ROUNDS)]
        rows[f"two tables, unit buckets: {buckets}"] = _median(took for took, _ in two)
        if buckets == "exact" and replayed is not None:
            differing = _differ(replayed, two[0][1])
            report.measured["panes whose cells are not those of the exact replay"] = float(differing)
        one = [counted_of_one_table(table, files.score_rows, buckets, CORES) for _ in range(ROUNDS)]
        rows[f"one table, unit buckets: {buckets}"] = _median(took for took, _ in one)
    report.tables.append(_rates(f"Rows to cells in DuckDB, {CORES} cores; median of {ROUNDS}", rows, CORES))
    for name, took in rows.items():
        report.measured |= _named(name, took, CORES)
    best = rows["two tables, unit buckets: engine"].per_cpu_second(CORES)
    report.judge(f"rows to cells in DuckDB, rows per second on {CORES} cores", best, CELLS)


def _median(rounds: Iterable[Took]) -> Took:
    """The round of the middle CPU seconds."""
    ordered = sorted(rounds, key=lambda took: took.cpu_s)
    return ordered[len(ordered) // 2]


def _differ(replayed: CellHistory, counted: CellHistory) -> int:
    panes = range(counted.first_pane, min(replayed.last_matured, counted.last_matured) + 1)
    return sum(replayed.matured(pane).pack() != counted.matured(pane).pack() for pane in panes)


def _kafka(report: Report, bar: Bar, events: int) -> None:
    bar.begin("Kafka: a backlog, read by a bare loop and by the replay", events * (1 + 2 * ROUNDS))
    found = beside_bare_loop(events, ROUNDS, bar.add)
    table = Table("loop", title="Topics on Kafka, kafka-python: blocks of scores, labels as JSON; median round")
    for column in ("records", "events", "seconds", "CPU us a record", "events a second"):
        table.add_column(column, justify="right")
    for name, rate in (("bare", found.bare), ("exact replay", found.replay)):
        table.add_row(name, *_kafka_row(rate))
        report.measured[f"kafka, {name}, records per second"] = rate.records / rate.wall_s
        report.measured[f"kafka, {name}, CPU us per record"] = 1e6 * rate.cpu_s / rate.records
    report.tables.append(table)
    report.ratios["exact replay / bare loop, kafka-python"] = found.share
    report.ratios["exact replay / bare loop, kafka-python, by CPU"] = found.cpu_share
    report.judge("exact replay from Kafka / bare loop", found.share, KAFKA)


def _kafka_row(rate: Rate) -> list[str]:
    cpu_us = 1e6 * rate.cpu_s / rate.records
    per_second = rate.events / rate.wall_s
    return [f"{rate.records:,}", f"{rate.events:,}", f"{rate.wall_s:.2f}", f"{cpu_us:.2f}", f"{per_second:,.0f}"]


def _policies(report: Report, bar: Bar, scale: float) -> None:
    config, history = flights_history()
    same, other = (policies_of(config, grid, scale) for grid in (SAME_FITS, OTHER_FITS))
    title = f"Policies over {len(history.panes):,} panes of flights, {PROCESSES} processes; a minute"
    table = Table("policies that differ in", title=f"{title}; load {os.getloadavg()[0]:.1f}")
    for column in ("policies", "by the clock", "by CPU"):
        table.add_column(column, justify="right")
    found: dict[str, PoliciesTook] = {}
    for name, policies in (("gate, triggers, cadence", same), ("fits", other)):
        bar.begin(f"policies that differ in {name}", len(policies))
        found[name] = took = timed(history, policies, bar.reached)
        rates = took.per_minute, took.per_cpu_minute
        table.add_row(name, str(took.policies), *(f"{rate:.1f}" for rate in rates))
        for what, rate in zip(("by the clock", "by CPU"), rates, strict=True):
            report.measured[f"policies a minute that differ in {name}, {what}"] = rate
    report.tables.append(table)
    shared, own = found.values()
    report.judge("policies a minute, fits shared", shared.per_cpu_minute, POLICIES_OF_SAME_FITS)
    report.judge("policies a minute, fits of their own", own.per_cpu_minute, POLICIES_OF_OTHER_FITS)


def _memory(report: Report, bar: Bar, events: int, scores_an_hour: int) -> None:
    bar.begin(f"memory: {events:,} events", events)
    samples = watch(events, scores_an_hour, bar.at)
    table = Table("events", title="Resident set of an exact replay, megabytes")
    for column in ("resident", "of that packed cells", "the rest"):
        table.add_column(column, justify="right")
    for sample in samples[SAMPLES // 8 - 1 :: SAMPLES // 8]:
        megabytes = sample.resident_megabytes, sample.cells_megabytes, sample.held_megabytes
        table.add_row(f"{sample.events:,}", *(f"{value:,.0f}" for value in megabytes))
        report.measured[f"resident megabytes at {sample.events} events"] = sample.resident_megabytes
    report.tables.append(table)
    report.measured["packed cells, megabytes at the end"] = samples[-1].cells_megabytes
    growth = growth_percent(samples)
    report.judge("memory but for the packed cells, percent of growth in the second half", growth, MEMORY)


def _peers(report: Report, bar: Bar, scores_an_hour: int) -> None:
    bar.begin("Evidently and NannyML")
    found = compared(PEER_DAYS, scores_an_hour)
    rows = scores_an_hour * 24 * PEER_DAYS
    table = Table("package", title=f"Drift and calibration of each day, {rows:,} scores with labels, one thread")
    for column in ("days", "CPU seconds", "seconds", "rows per CPU second"):
        table.add_column(column, justify="right")
    for name, took in found.items():
        table.add_row(name, f"{took.days:.0f}", f"{took.cpu_s:.2f}", f"{took.wall_s:.2f}", f"{rows / took.cpu_s:,.0f}")
        report.measured[f"{name}, CPU seconds for {rows} rows"] = took.cpu_s
        if name != "ours":
            report.ratios[f"CPU of {name} / ours"] = took.cpu_s / found["ours"].cpu_s
    report.tables.append(table)


def _rates(title: str, rows: dict[str, Took], cores: int) -> Table:
    table = Table("", title=f"{title}; load {os.getloadavg()[0]:.1f}")
    for column in ("events", "CPU seconds", "a second, by CPU", "a second, by the clock"):
        table.add_column(column, justify="right")
    for name, took in rows.items():
        by_cpu, by_clock = took.per_cpu_second(cores), took.per_second
        table.add_row(name, f"{took.events:,}", f"{took.cpu_s:.2f}", f"{by_cpu:,.0f}", f"{by_clock:,.0f}")
    return table


def _named(name: str, took: Took, cores: int) -> dict[str, float]:
    return {
        f"{name}, per second by CPU": took.per_cpu_second(cores),
        f"{name}, per second by the clock": took.per_second,
        f"{name}, load of the machine": os.getloadavg()[0],
    }


if __name__ == "__main__":
    typer.run(main)
