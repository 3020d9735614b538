"""What the residual detectors cost in false alarms, and how soon they find a change, beside what is usual.

    python benchmarks/drift.py                          # everything: 2 x 10^8 events without a change a law
    python benchmarks/drift.py --quick                  # the same with a hundredth of the events
    python benchmarks/drift.py --only null --law "Beta(2,2)" --json null.json

50 equal groups, windows of 200 labelled events each, three laws of the score. Served is the true probability; after a
change it is .05 too low in one group. All detectors of a law see the same events, River's (in an environment of their
own, event by event in Python) fewer. A window's length is part of every delay, so ours and the oracle are also run
with panes of one event. Then shocks that all groups share in a window, and events in clusters; last, the
time that a pane takes.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from benchmarks.drift_event_runs import NULL_GROUPS, event_delays, event_null_alarms
from benchmarks.drift_report import Goal, Report
from benchmarks.drift_runs import (
    HORIZON,
    WARM_UP,
    Advance,
    delays,
    null_alarms,
    river_delays,
    river_null,
)
from benchmarks.drift_shock_runs import Dependence, dependent_alarms, dependent_delays, frozen_phi
from benchmarks.drift_speed import CELLS, pane_cost
from benchmarks.drift_traffic import GROUPS, LAWS, PER_WINDOW

OURS, OURS_BY_EVENT = "residual e-detectors", "residual e-detectors, every event"
DEPENDENCES = (
    Dependence(shock=0.01),
    Dependence(shock=0.02),
    Dependence(shock=0.04),
    Dependence(shock=0.04, panes=8),
    Dependence(cluster=5),
)
LAW = "Beta(2,8)"
"""Of the goal for the delay, and of shocks."""
PANES = (10_000, 100_000, 1_000_000, 1_000_000_000)

ENOUGH_EVENTS = 20_000_000
"""For an interval that can tell whether a budget of 1 in 10^6 is kept; with fewer it is not judged."""
WITHIN_BUDGET = Goal(1.0, at_least=False)
MEDIAN_DELAY = Goal(1_100, at_least=False)
ALL = Goal(1.0, at_least=True)
EVENTS_PER_SECOND = Goal(1_000_000, at_least=True)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is simulated."""

    null_events: int
    by_event: int
    """Of those who look at every event."""
    river_events: int
    runs: int
    river_runs: int
    dependent_events: int


FULL = Sizes(
    200_000_000, by_event=100_000_000, river_events=2_000_000, runs=2_000, river_runs=100, dependent_events=20_000_000
)
QUICK = Sizes(2_000_000, by_event=1_000_000, river_events=500_000, runs=200, river_runs=20, dependent_events=2_000_000)


class Bar:
    """Shows how far the run is that is going on."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def run(self, what: str, windows: int, work: Callable[[Advance], Result]) -> Result:
        """`windows`: how many the work tells of."""
        task = self._progress.add_task(what, total=windows)
        try:
            return work(lambda done: self._progress.advance(task, done))
        finally:
            self._progress.remove_task(task)

    def wait(self, what: str, work: Callable[[], Result]) -> Result:
        """For work that tells nothing before its end."""
        task = self._progress.add_task(what, total=None)
        try:
            return work()
        finally:
            self._progress.remove_task(task)


def main(
    only: Annotated[Literal["all", "null", "delay", "phi", "speed"], typer.Option(help="One part alone")] = "all",
    law: Annotated[
        Literal["all", "Beta(2,8)", "Beta(1,19)", "Beta(2,2)"], typer.Option(help="Null and delay of one law alone")
    ] = "all",
    quick: Annotated[bool, typer.Option("--quick", help="A hundredth of the events, a tenth of the runs")] = False,
    river: Annotated[bool, typer.Option(help="With River, in an environment that is made once")] = True,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures there too")] = None,
) -> None:
    """Measures false alarms, delays and cost of the residual detectors beside other methods."""
    console, report, sizes = Console(), Report(), QUICK if quick else FULL
    laws = list(LAWS) if law == "all" else [law]
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        bar = Bar(progress)
        if only in ("all", "null"):
            _null(report, bar, sizes, laws, river)
        if only in ("all", "delay"):
            _delay(report, bar, sizes, laws, river)
        if only in ("all", "phi"):
            _phi(report, bar, sizes)
        if only in ("all", "speed"):
            _speed(report)
    report.print(console)
    if json_file is not None:
        json_file.write_text(json.dumps(report.document(), indent=2) + "\n")


def _null(report: Report, bar: Bar, sizes: Sizes, laws: Sequence[str], river: bool) -> None:
    windows = sizes.null_events // (GROUPS * PER_WINDOW)
    for law in laws:
        found = bar.run(f"{law}: no change", windows, partial(null_alarms, law, sizes.null_events))
        by_event = partial(event_null_alarms, law, sizes.by_event)
        found |= bar.run(f"{law}: no change, every event", sizes.by_event // NULL_GROUPS, by_event)
        if river:
            found |= bar.wait(f"{law}: no change, River", partial(river_null, law, sizes.river_events))
        report.add_false_alarms(law, found)
        for ours in (OURS, OURS_BY_EVENT) if sizes.by_event >= ENOUGH_EVENTS else ():
            report.judge(f"{law}: false alarms per 10^6, {ours}, upper", found[ours].interval[1], WITHIN_BUDGET)


def _delay(report: Report, bar: Bar, sizes: Sizes, laws: Sequence[str], river: bool) -> None:
    for law, warm_up in itertools.product(laws, (WARM_UP, 0)):
        when = f"{law}: a change after {warm_up * PER_WINDOW:,} group events"
        found = bar.run(when, warm_up + HORIZON, partial(delays, law, sizes.runs, warm_up))
        found |= bar.run(f"{when}, every event", warm_up + HORIZON, partial(event_delays, law, sizes.runs, warm_up))
        if river:
            found |= bar.wait(f"{when}, River", partial(river_delays, law, sizes.river_runs, warm_up))
        report.add_delays(when, found)
        if law == LAW and warm_up:
            for ours in (OURS, OURS_BY_EVENT):
                report.judge(f"{law}: median delay, {ours}", found[ours].quantile(0.5), MEDIAN_DELAY)
        if not warm_up:
            report.judge(f"{law}: present from the first event, share detected", found[OURS].detected, ALL)


def _phi(report: Report, bar: Bar, sizes: Sizes) -> None:
    days = sizes.dependent_events // (GROUPS * PER_WINDOW)
    for dependence in DEPENDENCES:
        phi = frozen_phi(LAW, dependence)
        what = f"{LAW}, {dependence}, phi = {phi:.2f}"
        found = bar.run(what, days, partial(dependent_alarms, LAW, sizes.dependent_events, phi, dependence))
        report.add_false_alarms(what, found)
        if sizes.dependent_events >= ENOUGH_EVENTS:
            report.judge(f"{what}: false alarms, upper", found["with phi"].interval[1], WITHIN_BUDGET)
        late = partial(dependent_delays, LAW, sizes.runs, phi, dependence)
        report.add_delays(what, bar.run(f"{what}: delay", WARM_UP + HORIZON, late))


def _speed(report: Report) -> None:
    costs = [pane_cost(events, np.random.default_rng(7)) for events in PANES]
    report.add_costs(f"The residual step of a pane, {CELLS} cells x 8 shifts, two budgets", costs)
    by_events = {cost.events: cost for cost in costs}
    slow, large = by_events[100_000], by_events[1_000_000_000]
    report.judge("events a second, panes of 100,000", slow.events_per_second, EVENTS_PER_SECOND)
    report.ratios["time of a pane of 10^9 / of 10^6 events"] = large.seconds / by_events[1_000_000].seconds


if __name__ == "__main__":
    typer.run(main)
