"""What the join costs: one monitor process and one Redis-compatible server.

    python benchmarks/join.py [--pending 2000000] [--panes 6] [--shards 1] [--json FILE]

First the join is filled with scores that wait for their labels, which gives the bytes that each needs. Then time goes
on, pane by pane: as many scores come as leave, a label comes for each score twelve panes before, panes close, mature
and are removed. Counted is everything that the monitor does between the log and the state: unpacking blocks, decoding
JSON labels, judging, sharing out, applying, walking, committing, removing. The log itself and the step of a decided
pane are left out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import redis
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from stream_calib.config import Config
from stream_calib.events.blocks import BlockRows, pack
from stream_calib.events.contracts import ModelKey
from stream_calib.events.identity import fingerprints, signature_hash, unit_buckets
from stream_calib.events.label_decoder import LabelDecoder
from stream_calib.redis_connection import connect
from stream_calib.snapshot.decision_log import DecisionLog
from stream_calib.transport.embedded_server import EmbeddedServer
from stream_calib.transport.port import OffsetRange, Record, TopicPartition
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.closer import Closer
from stream_calib.windows.input_batch import judge_records
from stream_calib.windows.intake import Intake
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.redis_shards import RedisShards
from stream_calib.windows.redis_state import RedisState
from stream_calib.windows.registration import register_inputs
from stream_calib.windows.shard_store import Mark
from workers.monitor_inputs import ReadBlocks, ReadInput, ReadLabels

GOALS = {"events_per_second": 60_000.0, "redis_cpu_us_per_event": 8.0, "bytes_per_pending_score": 52.0}
"""The first is to be reached, the others not to be passed."""

MODEL = ModelKey("benchmark", "1")
HOUR_MS = 3_600_000
HORIZON_PANES, LABEL_LAG_PANES, PARTITIONS, BLOCK_ROWS = 24, 12, 4, 500
FIRST_PANE = 1_700_000_000_000 // HOUR_MS
CONFIG = Config.model_validate(
    {"model": {"name": MODEL.model, "version": MODEL.version}, "windows": {"horizon": "24h"}}
)


@dataclass(frozen=True)
class Decision:
    detector: str = "{}"
    decisions: tuple[bytes, ...] = ()
    outbox: tuple[bytes, ...] = ()
    open_request: str = ""


class NoStep:
    """Decides nothing: the step is measured elsewhere."""

    horizon_panes = HORIZON_PANES

    def missing(self, pane: int) -> range:
        return range(0)

    def push(self, pane: int, cells: ScoredCells) -> None:
        raise AssertionError("nothing was asked for")

    def decide(
        self, pane: int, detector: str | None, log: DecisionLog, matured: MaturedCells, cells_sha256: str
    ) -> Decision:
        return Decision()


class Traffic:
    """One hour of scores as packed blocks and of labels as JSON, spread over the partitions, made ahead of time."""

    def __init__(self, scores_a_pane: int) -> None:
        self.n = scores_a_pane
        self.random = np.random.default_rng(1)
        self.offsets = {"blocks": [0] * PARTITIONS, "labels": [0] * PARTITIONS}
        self.signatures: list[tuple[str, ...]] = [(f"carrier-{i % 16}", f"origin-{i // 16}") for i in range(48)]
        self.hashes = np.array([signature_hash(s) for s in self.signatures], dtype=np.uint64)

    def times(self, pane: int) -> NDArray[np.int64]:
        return (FIRST_PANE + pane) * HOUR_MS + np.arange(self.n) * HOUR_MS // self.n

    def blocks(self, pane: int) -> list[Record]:
        ids = fingerprints(f"event-{pane}-{i}" for i in range(self.n))
        scores, signature = self.random.beta(2, 5, self.n), self.random.integers(0, 48, self.n).astype(np.uint16)
        times = self.times(pane)
        found = []
        for number, start in enumerate(range(0, self.n, BLOCK_ROWS)):
            rows = slice(start, start + BLOCK_ROWS)
            size = len(ids[rows])
            block = BlockRows(
                MODEL,
                self.signatures,
                self.hashes,
                ["0" * 16],
                ids[rows],
                times[rows],
                scores[rows],
                signature[rows],
                unit_buckets(ids[rows]),
                np.zeros(size, dtype=np.uint8),
                np.rint(scores[rows] * (2**32 - 1)).astype(np.uint32),
            )
            found.append(self._record("blocks", number % PARTITIONS, pack(block), int(times[rows][-1])))
        return found

    def labels(self, pane: int) -> list[Record]:
        """For the scores of LABEL_LAG_PANES before, in their order but for the partitions."""
        found = []
        for i, (when, label) in enumerate(
            zip(self.times(pane).tolist(), self.random.integers(0, 2, self.n).tolist(), strict=True)
        ):
            value = {"event_id": f"event-{pane - LABEL_LAG_PANES}-{i}", "label": label, "ts": when}
            found.append(self._record("labels", i % PARTITIONS, json.dumps(value).encode(), when))
        return found

    def _record(self, topic: str, partition: int, value: bytes, append_ms: int) -> Record:
        offset = self.offsets[topic][partition]
        self.offsets[topic][partition] += 1
        return Record(TopicPartition(topic, partition), offset, None, value, (), append_ms)


class Monitor:
    """The part of workers/monitor.py between the log and the state."""

    def __init__(self, client: redis.Redis, shards: int) -> None:
        self.shards = RedisShards(client, MODEL, shards, PaneSettings.of(CONFIG))
        self.state = RedisState(client, MODEL)
        sides = {"blocks": "s", "labels": "l"}
        self.keys = {TopicPartition(t, p): f"{sides[t]}:t:{p}" for t in sides for p in range(PARTITIONS)}
        starts = dict.fromkeys(self.keys.values(), Mark(0, None))
        inputs = register_inputs(self.shards, self.state, starts)
        self.intake = Intake(self.shards, lambda: inputs)
        self.closer = Closer(self.shards, self.state, lambda first: NoStep())
        self.decoder = LabelDecoder(CONFIG)
        self.marks = dict.fromkeys(self.keys, Mark(0, None))
        self.known: set[int] = set()

    def take(self, polled: list[Record]) -> None:
        by_partition: dict[TopicPartition, list[Record]] = {}
        for record in polled:
            by_partition.setdefault(record.source, []).append(record)
        batches = []
        for partition, records in by_partition.items():
            span = OffsetRange(records[0].offset, records[-1].offset + 1)
            read: ReadInput
            if partition.topic == "blocks":
                read = ReadBlocks(records, span, self.shards.settings.max_clock_skew_ms)
                new = {h: values for h, values in read.signatures(MODEL).items() if h not in self.known}
                self.state.put_signatures(new, 0)
                self.known.update(new)
            else:
                read = ReadLabels(records, span, self.decoder, self.shards.settings.clock_skew_ms("l"))
            clock_ms = self.marks[partition].clock_ms
            made = judge_records(
                self.keys[partition], read.of(MODEL), clock_ms, self.shards.count, self.shards.settings
            )
            self.marks[partition] = made.mark
            batches.append(made)
        if self.intake.apply(batches):
            raise AssertionError("nothing goes wrong here, so nothing is rewound")


def polls(blocks: list[Record], labels: list[Record], rows: int) -> Iterator[list[Record]]:
    """Both topics side by side, about `rows` scores and as many labels a poll."""
    most = max(rows // BLOCK_ROWS, 1)
    for number, start in enumerate(range(0, len(blocks), most)):
        yield blocks[start : start + most] + labels[number * most * BLOCK_ROWS : (number + 1) * most * BLOCK_ROWS]


def cpu_seconds(client: redis.Redis) -> float:
    info = client.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


def used_bytes(client: redis.Redis) -> int:
    return int(client.info("memory")["used_memory"])


def measure(client: redis.Redis, pending: int, panes: int, shards: int, poll_rows: int) -> dict[str, float]:
    """All figures."""
    monitor, traffic = Monitor(client, shards), Traffic(max(pending // HORIZON_PANES, 1))
    empty, figures = used_bytes(client), dict[str, float]()
    seconds = cpu = 0.0
    for pane in range(HORIZON_PANES):
        blocks = traffic.blocks(pane)
        started, before = time.perf_counter(), cpu_seconds(client)
        for polled in polls(blocks, [], poll_rows):
            monitor.take(polled)
        seconds += time.perf_counter() - started
        cpu += cpu_seconds(client) - before
    scores = traffic.n * HORIZON_PANES
    figures["pending_scores"] = scores
    figures["bytes_per_pending_score"] = (used_bytes(client) - empty) / scores
    figures["fill_scores_per_second"] = scores / seconds
    figures["fill_redis_cpu_us_per_score"] = 1e6 * cpu / scores

    events, seconds, cpu, busy = 0, 0.0, 0.0, 0.0
    for pane in range(HORIZON_PANES, HORIZON_PANES + panes):
        blocks, labels = traffic.blocks(pane), traffic.labels(pane)
        started, before, own = time.perf_counter(), cpu_seconds(client), time.process_time()
        for polled in polls(blocks, labels, poll_rows):
            monitor.take(polled)
            monitor.closer.advance()
        while monitor.closer.advance():
            pass
        seconds += time.perf_counter() - started
        cpu += cpu_seconds(client) - before
        busy += time.process_time() - own
        events += 2 * traffic.n
    at = monitor.state.read(("first_pane", "matured"))
    matured = int(at["matured"] or 0) - int(at["first_pane"] or 0) + 1
    figures |= {
        "events": events,
        "events_per_second": events / seconds,
        "redis_cpu_us_per_event": 1e6 * cpu / events,
        "monitor_cpu_us_per_event": 1e6 * busy / events,
        "panes_matured": matured,
    }
    return figures


def judged(figures: dict[str, float]) -> dict[str, dict[str, float | bool]]:
    """Goal, value, met for each goal."""
    found: dict[str, dict[str, float | bool]] = {}
    for name, goal in GOALS.items():
        value = figures[name]
        met = value >= goal if name == "events_per_second" else value <= goal
        found[name] = {"goal": goal, "value": value, "met": met}
    return found


def main(
    pending: Annotated[int, typer.Option(help="Scores that wait for labels; small for a quick run")] = 2_000_000,
    panes: Annotated[int, typer.Option(min=3, help="Panes of the second part")] = 6,
    shards: Annotated[int, typer.Option(min=1)] = 1,
    poll_rows: Annotated[int, typer.Option(min=BLOCK_ROWS, help="Scores, and labels, that a poll brings")] = 5_000,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures there too")] = None,
) -> None:
    """Measures the join: events a second, Redis CPU an event, bytes a pending score."""
    with EmbeddedServer() as server, connect(server.url) as client:
        description = server.description
        figures = measure(client, pending, panes, shards, poll_rows)
    goals = judged(figures)
    table = Table(title=f"The join, {pending:,} pending, {shards} shards, {description}")
    for heading in ("figure", "measured", "goal", ""):
        table.add_column(heading, justify="left" if heading in ("figure", "") else "right")
    for name, value in figures.items():
        shown = f"{value:,.0f}" if value >= 1_000 else f"{value:.2f}"
        if name in goals:
            bound = ">=" if name == "events_per_second" else "<="
            table.add_row(
                name, shown, f"{bound} {goals[name]['goal']:,.0f}", "met" if goals[name]["met"] else "NOT MET"
            )
        else:
            table.add_row(name, shown, "", "")
    Console().print(table)
    if json_file is not None:
        ratios = {name: goal["value"] / goal["goal"] for name, goal in goals.items()}
        json_file.write_text(json.dumps({"measured": figures, "ratios": ratios, "goals": goals}, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
