"""What calibrators are worth on real data: log-loss, Brier score, AUC and worst group error, beside MCGrad.

    python benchmarks/quality.py                      # all parts, about an hour with one thread
    python benchmarks/quality.py --only packaged      # minutes
    python benchmarks/quality.py --only flights --days 120 --mcgrad none
    python benchmarks/quality.py --json quality.json

* flights: a year of flights out of New York in the order of time. Every method is refitted every so many days, to all
  rows whose labels are 24 hours old by then, alike or weighted by age, and answers until the next refit; over all rows
  from the fifteenth day on. The service itself, which refits daily, is shown beside them.
* packaged: what scikit-learn ships, scored by naive Bayes and by a forest; calibrators are cross-validated.
* fusion: two badly scaled models of the digits, one by one and together.
* perfect: what the service costs on flights whose labels are drawn from their scores.

Intervals are of 95 %, by a bootstrap of days (flights) or of samples. `difference` is that of the log-loss to
Multicalibrator's, or to the best fusion's, in the same draws. MCGrad gets an environment of its own, made once with
pip, and the same rows, attributes and weights.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal

# Before numpy is imported, which reads it then.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.mcgrad_runs import How, McGrad, default_environment
from benchmarks.quality_data import Rows, Task
from benchmarks.quality_figures import Figure, figures
from benchmarks.quality_flights import HALF_LIFE_DAYS, flights_task, service_answers
from benchmarks.quality_fusion import BEST, fusion_answers
from benchmarks.quality_methods import MULTICALIBRATOR, OWN, answers_of, answers_of_mcgrad
from benchmarks.quality_packaged import packaged_tasks
from benchmarks.quality_perfect import GOAL, excess_on_perfect_score
from stream_calib.errors import FitError

COLUMNS = {
    "log_loss": ("log-loss", 4),
    "log_loss_difference": ("difference", 4),
    "brier": ("Brier", 4),
    "auc": ("AUC", 4),
    "worst_group_error_percent": ("worst group error, %", 2),
}
Only = Literal["all", "flights", "packaged", "fusion", "perfect"]
Step = Callable[[str], None]
Answers = Mapping[str, NDArray[np.float64]]
Result = dict[str, dict[str, Figure]]
"""Figures by method."""


def main(
    only: Annotated[Only, typer.Option(help="One part alone")] = "all",
    days: Annotated[int, typer.Option(min=30, help="Days of the year of flights")] = 365,
    every_days: Annotated[int, typer.Option(min=1, help="Days from refit to refit")] = 7,
    mcgrad: Annotated[
        Literal["none", "holdout", "default"], typer.Option(help="How MCGrad is fitted, if at all")
    ] = "default",
    mcgrad_every_days: Annotated[int, typer.Option(min=1, help="The same of MCGrad, which takes long")] = 28,
    environment: Annotated[
        Path | None, typer.Option(help="Folder of the environment with MCGrad; by default under the user's cache")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures there too")] = None,
) -> None:
    """Measures what calibrators are worth on the flights, on packaged data sets, in fusion, and on a perfect score.

    Examples: `--only packaged`; `--only flights --days 120 --mcgrad none`.
    """
    console, results = Console(), dict[str, Result]()
    excess: Figure | None = None
    with Bar(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console, transient=True
    ) as bar:
        shown = bar.add_task("")

        def step(what: str) -> None:
            bar.update(shown, description=what)

        made: tuple[How, McGrad] | None = None
        if mcgrad != "none" and only not in ("fusion", "perfect"):
            step("the environment of MCGrad")
            made = mcgrad, McGrad(environment or default_environment())
        if only in ("all", "fusion"):
            step("fusion")
            rows, answers = fusion_answers()
            results["fusion, digits"] = judged(rows, answers, BEST, step)
            show(console, "fusion, digits", results["fusion, digits"])
        if only in ("all", "packaged"):
            for task in packaged_tasks():
                results[task.name] = judged_task(task, made, step, console)
        if only in ("all", "flights"):
            step("flights: the service")
            service = service_answers(days)
            for half_life_days in (None, HALF_LIFE_DAYS):
                task = flights_task(every_days, days, half_life_days)
                seldom = flights_task(mcgrad_every_days, days, half_life_days)
                results[task.name] = judged_flights(task, seldom, mcgrad_every_days, service, made, step, console)
        if only in ("all", "perfect"):
            step("a perfect score")
            excess = excess_on_perfect_score(days)
            console.print(f"excess log-loss on a perfect score: {excess.text(5)}, goal <= {GOAL}")
    if json_file is not None:
        json_file.write_text(json.dumps(document(results, excess), indent=2) + "\n")


def judged_task(task: Task, mcgrad: tuple[How, McGrad] | None, step: Step, console: Console) -> Result:
    """Shows and returns the figures of every method on one task."""
    answers = own_answers(task, step, console)
    if mcgrad is not None:
        step(f"{task.name}: MCGrad")
        answers[f"MCGrad, {mcgrad[0]}"] = answers_of_mcgrad(*mcgrad, task)
    result = judged(task.rows, answers, MULTICALIBRATOR, step)
    show(console, task.name, result)
    return result


def judged_flights(
    task: Task,
    seldom: Task,
    seldom_days: int,
    service: NDArray[np.float64],
    mcgrad: tuple[How, McGrad] | None,
    step: Step,
    console: Console,
) -> Result:
    """The same of the flights, where MCGrad is refitted as in the task `seldom`, and Multicalibrator as seldom too."""
    answers = own_answers(task, step, console)
    if mcgrad is not None:
        step(f"{seldom.name}: MCGrad")
        answers[f"MCGrad, {mcgrad[0]}, every {seldom_days} days"] = answers_of_mcgrad(*mcgrad, seldom)
        answers[f"{MULTICALIBRATOR}, every {seldom_days} days"] = answers_of(MULTICALIBRATOR, seldom)
    answers["the service, daily"] = service
    result = judged(task.rows, answers, MULTICALIBRATOR, step)
    show(console, task.name, result)
    return result


def own_answers(task: Task, step: Step, console: Console) -> dict[str, NDArray[np.float64]]:
    """Of all methods that do not refuse the task; what those that do say is printed."""
    answers = {}
    for method in OWN:
        step(f"{task.name}: {method}")
        try:
            answers[method] = answers_of(method, task)
        except FitError as error:
            console.print(f"{task.name}: {method} refuses: {error}")
    return answers


def judged(rows: Rows, answers: Answers, reference: str, step: Step) -> Result:
    """Figures on the rows that everybody answered for."""
    answered = np.flatnonzero(~np.isnan(np.stack(list(answers.values()))).any(axis=0))
    own = rows.chosen(answered)
    found = {}
    for method, probability in answers.items():
        step(f"intervals: {method}")
        compared = answers.get(reference, probability)
        found[method] = figures(own, probability[answered], compared[answered])
    return found


def show(console: Console, name: str, result: Result) -> None:
    table = Table("method", *(heading for heading, _ in COLUMNS.values()), title=name)
    for method, found in result.items():
        table.add_row(method, *(found[figure].text(digits) for figure, (_, digits) in COLUMNS.items()))
    console.print(table)


def document(results: Mapping[str, Result], excess: Figure | None) -> dict[str, dict[str, object]]:
    """As every benchmark writes it. Ratios: each method's log-loss by the raw score's."""
    measured: dict[str, object] = {}
    ratios: dict[str, object] = {}
    for task, result in results.items():
        measured[task] = {
            method: {figure: [each.value, each.low, each.high] for figure, each in found.items()}
            for method, found in result.items()
        }
        raw = next(iter(result.values()))["log_loss"].value
        ratios[task] = {method: found["log_loss"].value / raw for method, found in result.items()}
    goals: dict[str, object] = {}
    if excess is not None:
        name = "excess log-loss on a perfect score"
        measured[name] = [excess.value, excess.low, excess.high]
        goals[name] = {"goal": GOAL, "value": excess.value, "met": excess.value <= GOAL}
    return {"measured": measured, "ratios": ratios, "goals": goals}


if __name__ == "__main__":
    typer.run(main)
