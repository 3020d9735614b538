"""Whether the formula of docs/sizing.md holds: `used_memory` of a server that it starts, against what is reckoned.

    python benchmarks/sizing.py                     # three loads, some minutes
    python benchmarks/sizing.py --only small        # a quick look
    python benchmarks/sizing.py --json sizing.json

Each load is brought to the shards hour after hour as a monitor does, until panes are closed, matured and removed as
fast as they come. What is measured is the memory of the server beyond that of an empty one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from benchmarks.sizing_load import HORIZON_PANES, Filled, Size
from stream_calib.redis_connection import connect
from stream_calib.transport.embedded_server import EmbeddedServer
from workers.sizing import Parts, needed

GOAL = 0.10
"""Share of what is measured by which the formula may be off."""
SIZES = {
    "small": Size(scores_a_pane=2_000, signatures=8, shards=1, partitions=2, polls_a_pane=10, panes=12),
    "medium": Size(scores_a_pane=20_000, signatures=4_000, shards=8, partitions=2, polls_a_pane=4, panes=8),
    "large": Size(
        scores_a_pane=60_000,
        signatures=300,
        shards=4,
        partitions=2,
        polls_a_pane=8,
        panes=4,
        early=0.1,
        unscored=0.05,
        repeated=0.03,
    ),
}


def main(
    only: Annotated[Literal["all", "small", "medium", "large"], typer.Option(help="One load alone")] = "all",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures there too")] = None,
) -> None:
    """Measures the memory that three loads take, and holds the formula against it.

    A quick look: --only small
    """
    console = Console()
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    found = {}
    with Progress(*columns, console=console, transient=True) as bar:
        for name, size in SIZES.items():
            if only in ("all", name):
                found[name] = measured(name, size, bar)
    console.print(table(found))
    if json_file is not None:
        json_file.write_text(json.dumps(found, indent=2) + "\n")


def measured(name: str, size: Size, bar: Progress) -> dict[str, Any]:
    """The load, what was measured, what was reckoned, whether the goal is met."""
    task = bar.add_task(f"{name}: {size.scores_a_pane:,} scores a pane", total=size.panes + HORIZON_PANES + 1)
    with EmbeddedServer(appendonly=False) as server:
        client = connect(server.url)
        empty = int(client.info("memory")["used_memory"])
        filled = Filled(client, size, lambda pane: bar.advance(task))
        used = int(client.info("memory")["used_memory"]) - empty
        load = filled.load()
        client.close()
    bar.remove_task(task)
    return judged(used, needed(load)) | {"load": load._asdict()}


def judged(used: int, parts: Parts) -> dict[str, Any]:
    """`used` bytes against the parts."""
    off = parts.total / used - 1
    return {"used": used, "reckoned": parts.total, "off": off, "met": abs(off) <= GOAL, "parts": parts._asdict()}


def table(found: dict[str, dict[str, Any]]) -> Table:
    made = Table("load", title="Memory of the server, MB")
    for column in ("pending", "signatures", "measured", "reckoned", "off", "goal", ""):
        made.add_column(column, justify="right", no_wrap=True)
    for name, one in found.items():
        made.add_row(
            name,
            f"{one['load']['pending']:,}",
            f"{one['load']['signatures']:,}",
            f"{one['used'] / 1e6:.1f}",
            f"{one['reckoned'] / 1e6:.1f}",
            f"{one['off']:+.1%}",
            f"within {GOAL:.0%}",
            "met" if one["met"] else "NOT MET",
        )
    return made


if __name__ == "__main__":
    typer.run(main)
