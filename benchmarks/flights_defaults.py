"""Whether the defaults are those that the first half of the flights would choose, and what that is worth in the second.

    python -m benchmarks.flights_defaults [--days 306] [--processes 2] [--json FILE]

One setting at a time is moved to either side of the shipped value, and the year replayed (refits.py). Choosing looks at
days 14 to 159 alone: the mean difference of log-loss to the shipped defaults, with its standard error by days. Days 160
on say what the choice is worth on data that it has not seen. An hour of CPU.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

# Before numpy is imported, which reads it then.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks import refits
from benchmarks.flights_figures import LAST_DAY, PARTS, Worth, worth
from stream_calib.calibration.metrics import LOG_LOSS_CLIP
from stream_calib.config import Config
from stream_calib.config_file import tomllib
from stream_calib.demo.flights import DAY_MS, load_flights

SHIPPED = "shipped"
GRID: dict[str, tuple[Any, ...]] = {
    "calibration.structure_half_life": ("10d", "14d", "28d", "40d"),
    "calibration.level_half_life": ("1.5d", "2d", "4d", "6d"),
    "calibration.offset_ridge": (10.0, 40.0),
    "calibration.level_prior": (150.0, 600.0),
    "calibration.prior_strength": (15.0, 60.0),
    "refit.gate_window": ("5d", "10d", "14d"),
    "refit.gate_margin": (0.01, 0.04),
}
"""Setting -> values around the shipped one."""


@dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """One replay of the year."""

    by_part: dict[str, Worth]
    day: NDArray[np.int64]
    """(m,) of the labelled flights, from the first."""
    loss: NDArray[np.float64]
    """(m,) log-loss of each."""
    published: int


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean log-loss less that of the shipped defaults, and its standard error with days as blocks."""

    mean: float
    error: float


def variants() -> dict[str, dict[str, Any]]:
    """Name -> settings, the shipped ones first."""
    moved = {f"{key} = {value}": {key: value} for key, values in GRID.items() for value in values}
    return {SHIPPED: {}, **moved}


def replayed(settings: dict[str, Any], days: int) -> Variant:
    document: dict[str, Any] = tomllib.loads(refits.CONFIG.read_text(encoding="utf-8"))
    for key, value in settings.items():
        section, _, name = key.partition(".")
        document.setdefault(section, {})[name] = value
    config, flights = Config.model_validate(document), load_flights()
    rows = refits.Rows(flights, config)
    made, served = refits.replay(config, rows, days)
    labelled = np.flatnonzero(rows.label[: len(served)] >= 0)
    p, label = np.clip(served[labelled], LOG_LOSS_CLIP, 1 - LOG_LOSS_CLIP), rows.label[labelled]
    day = (rows.pane[labelled] - rows.pane[0]) * config.windows.pane_ms // DAY_MS
    published = sum(report.outcome == "published" for report in made.stepper.reports)
    return Variant(worth(flights, served), day, -np.log(np.where(label == 1, p, 1 - p)), published)


def difference(one: Variant, shipped: Variant, part: str) -> Difference:
    """Over the days of the part, in the same rows."""
    first, end = PARTS[part]
    own = (one.day >= first) & (one.day < end)
    gain, day = (one.loss - shipped.loss)[own], one.day[own]
    mean = float(gain.mean())
    of_day = np.bincount(day - first, gain - mean)
    blocks = np.count_nonzero(np.bincount(day - first))
    return Difference(mean, float(np.sqrt(blocks / (blocks - 1) * (of_day**2).sum()) / len(gain)))


def main(
    days: Annotated[int, typer.Option(min=200, max=LAST_DAY, help="Days of the year that are replayed")] = LAST_DAY,
    processes: Annotated[int, typer.Option(min=1, help="Replays at a time")] = 2,
    json_file: Annotated[Path | None, typer.Option("--json")] = None,
) -> None:
    """Replays the year once for each setting."""
    console, found = Console(), dict[str, Variant]()
    with Progress(console=console) as progress, ProcessPoolExecutor(processes) as pool:
        task = progress.add_task("replays", total=len(variants()))
        asked = {pool.submit(replayed, settings, days): name for name, settings in variants().items()}
        for done in as_completed(asked):
            found[asked[done]] = done.result()
            progress.advance(task)
    shipped, measured = found[SHIPPED], dict[str, Any]()
    halves = ("first half", "second half")
    table = Table("setting", *(f"{part}: {what}" for part in halves for what in ("log-loss", "difference", "worst, %")))
    for name in variants():
        cells, measured[name] = [], {"published": found[name].published}
        for part in halves:
            one, moved = found[name].by_part[part], difference(found[name], shipped, part)
            cells += [f"{one.log_loss:.5f}", f"{moved.mean:+.5f} +- {moved.error:.5f}", f"{one.worst_group_error:.2f}"]
            measured[name][part] = {
                "log_loss": one.log_loss,
                "difference": moved.mean,
                "error": moved.error,
                "worst_group_error": one.worst_group_error,
            }
        table.add_row(name, *cells)
    console.print(table)
    if json_file is not None:
        json_file.write_text(json.dumps({"measured": measured, "ratios": {}, "goals": {}}, indent=1))


if __name__ == "__main__":
    typer.run(main)
