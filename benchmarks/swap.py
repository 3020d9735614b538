"""How long a swap takes: from the call that publishes to the last of several processes that serves by the new snapshot.

    python benchmarks/swap.py                                # 8 readers, 40 swaps with news, 20 by polling alone
    python benchmarks/swap.py --readers 2 --swaps 5          # a quick look
    python benchmarks/swap.py --only polled --json swap.json

Each reader is a process of its own that does what calibrate does with snapshots: before each batch it looks for news,
follows the pointer, checks the bytes, compiles the map, and calibrates the batch. A swap is over for it when the first
batch has gone through the new map. Measured twice: where readers hear of a new snapshot over pub/sub, and where they
may not, and only poll the pointer every `serving.snapshot_poll`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from benchmarks.swap_readers import readers
from stream_calib.config import Config, ServingSection
from stream_calib.config_identity import configured_keys
from stream_calib.redis_connection import connect
from stream_calib.snapshot.map_documents import FamilyDocument, OffsetDocument
from stream_calib.snapshot.store import SnapshotStore
from stream_calib.transport.embedded_server import EmbeddedServer
from stream_calib.windows.redis_state import RedisState
from stream_calib.windows.state_store import Commit
from tests.unit.snapshot.asking import ask
from tests.unit.snapshot.documents import report, structure

Way = Literal["news", "polled"]
ATTRIBUTES = ("carrier", "origin")
WITH_NEWS_MS = 100.0


class Swap(NamedTuple):
    """One publication, in milliseconds from the call."""

    committed: float
    first: float
    last: float
    reader_cpu: float
    """Of a reader, on average: with fewer cores than readers, they wait for each other so long."""


def main(
    count: Annotated[int, typer.Option("--readers", min=1, help="Processes that serve")] = 8,
    swaps: Annotated[int, typer.Option(min=1, help="Publications with news; half as many by polling alone")] = 40,
    batch_ms: Annotated[float, typer.Option(min=1, help="Between two batches of a reader")] = 10.0,
    only: Annotated[Literal["all", "news", "polled"], typer.Option(help="One of the two ways alone")] = "all",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures there too")] = None,
) -> None:
    """Measures from publish to the last reader, with news and by polling alone.

    A quick look: --readers 2 --swaps 5
    """
    console = Console()
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    found: dict[Way, list[Swap]] = {}
    ways: tuple[Way, ...] = ("news", "polled")
    with Progress(*columns, console=console, transient=True) as bar:
        for way in ways:
            if only in ("all", way):
                rounds = swaps if way == "news" else max(1, swaps // 2)
                found[way] = measure(way, count, rounds, batch_ms, bar)
    poll_ms = ServingSection().snapshot_poll_ms
    measured = {"cores": float(os.cpu_count() or 1), "readers": float(count), "snapshot_poll_ms": float(poll_ms)}
    for way, all_swaps in found.items():
        for name in Swap._fields:
            values = [getattr(swap, name) for swap in all_swaps]
            measured |= {
                f"{way}_{name}_ms_median": median(values),
                f"{way}_{name}_ms_90": float(np.quantile(values, 0.9)),
            }
    ratios = {}
    if len(found) == len(ways):
        ratios["polled / news, last reader"] = measured["polled_last_ms_median"] / measured["news_last_ms_median"]
    goals = judged(measured, {"news_last_ms_median": WITH_NEWS_MS, "polled_last_ms_median": float(poll_ms)})
    console.print(figure_table(measured, goals))
    if json_file is not None:
        json_file.write_text(json.dumps({"measured": measured, "ratios": ratios, "goals": goals}, indent=2) + "\n")


def configuration(url: str) -> dict[str, Any]:
    return {
        "model": {"name": "swapped", "version": "1"},
        "scores": {"attributes": {name: name for name in ATTRIBUTES}},
        "windows": {"horizon": "1h"},
        "redis": {"url": url},
        "log": {"kind": "embedded", "url": url},
    }


def measure(way: Way, count: int, rounds: int, batch_ms: float, bar: Progress) -> list[Swap]:
    """Publications one after the other, each after all readers use the one before."""
    task = bar.add_task(f"{count} readers, {way}", total=rounds)
    rng = np.random.default_rng(7)
    with EmbeddedServer() as server:
        raw = configuration(server.url)
        config = Config.model_validate(raw)
        (key,) = configured_keys(config)
        with connect(config.redis) as client:
            state = RedisState(client, key)
            state.commit(Commit(fields={"first_pane": "1", "decided": "9"}))
            token = state.acquire_lease("refit", "benchmark", 3_600_000)
            store = SnapshotStore(state, key, "g", config.windows.pane_ms, lambda: 0)
            swaps: list[Swap] = []
            with readers(raw, count, batch_ms, news=way == "news") as wait_until_used:
                for number in range(rounds + 1):
                    parent = store.current()
                    name = f"request {number}"
                    ask(state, name, parent)
                    candidate = structure(name, parent, attributes=ATTRIBUTES, families=families(rng), model="swapped")
                    # Not always at the same moment of the readers' poll.
                    time.sleep(float(rng.uniform(0, 0.5)))
                    began = time.monotonic_ns()
                    version = store.publish(candidate, report(name), str(token))
                    committed = time.monotonic_ns()
                    used = wait_until_used(version)
                    if number:  # with the first one the readers come up
                        first, last = min(one.at_ns for one in used), max(one.at_ns for one in used)
                        swaps.append(
                            Swap(
                                (committed - began) / 1e6,
                                (first - began) / 1e6,
                                (last - began) / 1e6,
                                sum(one.cpu_ns for one in used) / len(used) / 1e6,
                            )
                        )
                        bar.advance(task)
    bar.remove_task(task)
    return swaps


def families(rng: np.random.Generator) -> tuple[FamilyDocument, ...]:
    """Offsets of two attributes and their intersection, as of a deployment with a few hundred groups."""
    groups: list[list[tuple[str, ...]]] = [
        [(f"carrier {c}",) for c in range(16)],
        [(f"origin {o}",) for o in range(40)],
    ]
    groups.append([(*one, *two) for one in groups[0] for two in groups[1]])
    names = ((ATTRIBUTES[0],), (ATTRIBUTES[1],), ATTRIBUTES)
    return tuple(
        FamilyDocument(
            attributes=attributes,
            offsets=tuple(
                OffsetDocument(values=values, offset=float(rng.normal(0, 0.2))) for values in sorted(of_family)
            ),
        )
        for attributes, of_family in zip(names, groups, strict=True)
    )


def judged(values: Mapping[str, float], goals: Mapping[str, float]) -> dict[str, dict[str, float | bool]]:
    """Goal, value, met for each goal whose value was measured."""
    return {
        name: {"goal": goal, "value": values[name], "met": values[name] <= goal}
        for name, goal in goals.items()
        if name in values
    }


def figure_table(measured: Mapping[str, float], goals: Mapping[str, Mapping[str, float | bool]]) -> Table:
    table = Table("figure", title="A swap: milliseconds from the call that publishes")
    table.add_column("measured", justify="right")
    table.add_column("goal", justify="right")
    table.add_column("")
    for name, value in measured.items():
        goal, verdict = "", ""
        if name in goals:
            goal, verdict = f"<= {goals[name]['goal']:,g}", "met" if goals[name]["met"] else "NOT MET"
        table.add_row(name, f"{value:,.1f}", goal, verdict)
    return table


if __name__ == "__main__":
    typer.run(main)
