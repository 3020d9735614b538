"""What calibration costs and how near it comes to the truth, beside scikit-learn, numpy and MCGrad, in one run.

    python benchmarks/calibration.py                          # all four parts, about 20 minutes
    python benchmarks/calibration.py --scale 0.05 --rounds 2  # a quick look
    python benchmarks/calibration.py --only girb              # as apply, without MCGrad
    python benchmarks/calibration.py --json calibration.json

Everything is timed side by side, in turn, by one thread each and in CPU seconds, which other work on the machine moves
little; ratios are medians over the rounds (of refits: over the worlds). MCGrad gets an environment of its own, made
once with pip. The worlds are those of `synthetic_world.py`: as many training as test rows, of seeds of their own.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Literal

# Before numpy is imported, which reads it then.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import typer
from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.calibration_apply import PATCHES, measure_apply
from benchmarks.calibration_girb import measure_girb
from benchmarks.calibration_quality import Trial, measure_mcgrad, measure_own
from benchmarks.calibration_refit import measure_forward, measure_refit
from benchmarks.mcgrad_runs import McGrad, default_environment

PARTS = ("girb", "apply", "refit", "quality")

GOALS: dict[str, tuple[Literal[">=", "<="], float]] = {
    "girb_speed_of_isotonic": (">=", 5.0),
    "girb_memory_of_isotonic": ("<=", 0.25),
    **{f"apply_{patches}_patches_rate_of_searchsorted": (">=", 2.0) for patches in PATCHES},
    "apply_one_event_us": ("<=", 20.0),
    "refit_speed_of_mcgrad_holdout": (">=", 60.0),
    "refit_seconds_of_1000_times_the_events": ("<=", 1.2),
    "multicalibrator_rmse_worst_world": ("<=", 0.0100),
}
ROWS_GIRB, ROWS_WORLD, EVENTS, TIMES = 10_000_000, 1_000_000, 1_000_000, 1_000

Figures = dict[str, float]
Step = Callable[[str], None]


def main(
    only: Annotated[Literal["all", "girb", "apply", "refit", "quality"], typer.Option(help="One part alone")] = "all",
    rounds: Annotated[int, typer.Option(min=1, help="Runs of which medians are taken")] = 5,
    worlds: Annotated[int, typer.Option(min=1, help="Synthetic worlds; in each of them MCGrad is fitted")] = 5,
    default_worlds: Annotated[
        int, typer.Option(min=0, help="Worlds in which MCGrad is fitted as by default too, which takes long")
    ] = 1,
    scale: Annotated[float, typer.Option(min=0.001, max=1, help="Share of the rows; goals are judged at 1 only")] = 1.0,
    environment: Annotated[
        Path | None, typer.Option(help="Folder of the environment with MCGrad; by default under the user's cache")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures there too")] = None,
) -> None:
    """Measures GIRB's fit, a map's application, a whole refit, and the distance to the truth.

    Examples: `--scale 0.05 --rounds 2` for a quick look, `--only girb` or `--only apply` for what needs no MCGrad.
    """
    console, parts = Console(), PARTS if only == "all" else (only,)
    measured: Figures = {}
    ratios: Figures = {}
    with Bar(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console, transient=True
    ) as bar:
        task = bar.add_task("")

        def step(what: str) -> None:
            bar.update(task, description=what)

        for part, measure, rows in (("girb", measure_girb, ROWS_GIRB), ("apply", measure_apply, EVENTS)):
            if part in parts:
                figures, found = measure(int(rows * scale), rounds, step)
                measured |= figures
                ratios |= found
        if "refit" in parts or "quality" in parts:
            step("the environment of MCGrad")
            mcgrad = McGrad(environment or default_environment())
            figures, found = measure_worlds(parts, mcgrad, int(ROWS_WORLD * scale), worlds, default_worlds, step)
            measured |= figures
            ratios |= found
    goals = {
        name: {"goal": goal, "value": value, "met": value >= goal if sense == ">=" else value <= goal}
        for name, (sense, goal) in GOALS.items()
        if scale == 1 and (value := {**measured, **ratios}.get(name)) is not None
    }
    show(console, measured, ratios, goals)
    if json_file is not None:
        json_file.write_text(json.dumps({"measured": measured, "ratios": ratios, "goals": goals}, indent=2) + "\n")


def measure_worlds(
    parts: Collection[str], mcgrad: McGrad, rows: int, worlds: int, default_worlds: int, step: Step
) -> tuple[Figures, Figures]:
    """Figures and ratios of refit and quality. MCGrad's fit on a world is timed and judged at once."""
    by_world: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        by_world.setdefault(name, []).append(value)

    for number in range(1, worlds + 1):
        step(f"world {number}: rows")
        trial = Trial.draw(number, rows)
        if "refit" in parts:
            few, many = measure_refit(trial, 1, step), measure_refit(trial, TIMES, step)
            for name in ("refit", "fit_audits_certificate", "gate", "cells_taken_in"):
                note(f"{name}_seconds", few[name])
            note("refit_rmse", few["rmse"])
            note("refit_cells", few["cells"])
            note("refit_1000_times_the_events_seconds", many["refit"])
            note("refit_seconds_of_1000_times_the_events", many["refit"] / few["refit"])
            note("forward_evidence_seconds_a_day", measure_forward(trial, step))
        rmse, seconds = measure_mcgrad(trial, "holdout", mcgrad, step)
        note("mcgrad_holdout_rmse", rmse)
        note("mcgrad_holdout_seconds", seconds)
        if "refit" in parts:
            note("refit_speed_of_mcgrad_holdout", seconds / few["refit"])
        if "quality" in parts:
            errors, fit_seconds = measure_own(trial, step)
            for name, value in errors.items():
                note(f"{name}_rmse", value)
            for name, value in fit_seconds.items():
                note(f"{name}_seconds", value)
            if number <= default_worlds:
                rmse, seconds = measure_mcgrad(trial, "default", mcgrad, step)
                note("mcgrad_default_rmse", rmse)
                note("mcgrad_default_seconds", seconds)
    ratio_names = ("refit_speed_of_mcgrad_holdout", "refit_seconds_of_1000_times_the_events")
    medians = {name: statistics.median(values) for name, values in by_world.items()}
    ratios = {name: medians.pop(name) for name in ratio_names if name in medians}
    for name, values in by_world.items():
        if name.endswith("_rmse"):
            medians[f"{name}_worst_world"] = max(values)
            medians |= {f"{name}_world_{number}": value for number, value in enumerate(values, 1)}
    return medians, ratios


def show(console: Console, measured: Figures, ratios: Figures, goals: dict[str, dict[str, float | bool]]) -> None:
    table = Table("figure", "measured", "goal", "", title="Medians")
    for name, value in {**measured, **ratios}.items():
        verdict = goals.get(name)
        bound = f"{GOALS[name][0]} {GOALS[name][1]:g}" if verdict else ""
        table.add_row(
            name, number_text(value), bound, "" if verdict is None else "met" if verdict["met"] else "NOT MET"
        )
    console.print(table)


def number_text(value: float) -> str:
    """Whole from 1,000 on, else four significant digits."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


if __name__ == "__main__":
    typer.run(main)
