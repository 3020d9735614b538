"""The whole service under load for a while: does memory grow, does it fall behind, does it get slower?

    python benchmarks/soak.py                                # 28 minutes over Kafka, at half of what a trial shows
    python benchmarks/soak.py --minutes 3 --rate 2000 --warm-up-panes 0   # a quick look, at a load of your own
    python benchmarks/soak.py --log embedded --json soak.json --svg soak.svg

calibrate, monitor, refit and alert run as processes of their own over a log and a server for the state, all of which
this starts and ends. First a trial: how many scores a second, each with its label, the service works off from a
backlog. Then half as many, while event time runs two hours a second: panes of six hours, so that refits, swaps and
whole windows of panes come within minutes.

What is bounded grows until it is full, so nothing is judged before `--warm-up-panes` have matured. All are full after
163 panes: those that are kept (32 days, which is longer than any window), as many as come between two checkpoints (a
week, until when panes of before are not dropped), and those of the horizon, of `keep_panes` and of what is closed; the
publications that are kept (20, of 10 days) and the decision log are by then too, and the outbox of alerts is filled at
the start. At two hours a second that is eight minutes after the load began. Judged are the `--minutes` after that
(their last third for lag and latency):

* resident memory of a process is flat when it is not shown to grow by more than 2 % an hour (lower end of a one-sided
  95 % interval of a line through means of ten blocks) and that line rises by 1 % at most; a rise of a third of a
  percent, what 2 % an hour make in ten minutes, is none;
* what is behind is under three seconds of load, and is not shown to grow by more than 1 % of the load;
* the 99th percentile of latency is within a quarter of that of the middle third;
* another snapshot came to serve at least once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from benchmarks.soak_figures import BLOCKS, Sample, Verdict, verdicts, warm
from benchmarks.soak_picture import picture
from benchmarks.soak_service import PANE_HOURS, LogKind, running_service

_TRIAL_SCORES = 100_000
WARM_UP_PANES = 163
_BEHIND_S = 10.0
"""Of load beyond what the panes of the warm-up take: they mature behind it."""
_SHOWN_ROWS = 12


def main(
    minutes: Annotated[float, typer.Option(min=1.0, help="Of load that is judged")] = 20.0,
    warm_up_panes: Annotated[int, typer.Option(min=0, help="Panes that mature before that")] = WARM_UP_PANES,
    rate: Annotated[float, typer.Option(min=0, help="Scores a second; 0: half of what the trial shows")] = 0.0,
    log: Annotated[LogKind, typer.Option(help="log.kind")] = "kafka",
    hours_a_second: Annotated[float, typer.Option(min=0.1, help="Speed of event time")] = 2.0,
    every: Annotated[float, typer.Option(min=0.5, help="Seconds between two samples")] = 3.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write figures and samples there too")] = None,
    svg_file: Annotated[Path | None, typer.Option("--svg", help="Draw the samples there")] = None,
) -> None:
    """Watches memory, lag and latency of the whole service under load.

    A quick look: --minutes 3 --rate 2000 --warm-up-panes 0
    """
    if 60 * minutes / every / 2 < 2 * BLOCKS:
        raise typer.BadParameter(f"half of what is judged needs {2 * BLOCKS} samples", param_hint="--every")
    console = Console()
    samples: list[Sample] = []
    measured: dict[str, float] = {}
    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with running_service(log) as service, Progress(*columns, console=console, transient=True) as bar:
        speed = 3_600 * hours_a_second
        if not rate:
            task = bar.add_task("trial: how much is full load?", total=None)
            measured["full_load_scores_per_second"] = service.trial(_TRIAL_SCORES, speed)
            rate = measured["full_load_scores_per_second"] / 2
            bar.remove_task(task)
        warm_up_s = warm_up_panes * PANE_HOURS / hours_a_second + _BEHIND_S if warm_up_panes else 0.0
        load_s = warm_up_s + 60 * minutes
        task = bar.add_task(f"{rate:,.0f} scores a second", total=load_s)

        def tell(sample: Sample) -> None:
            samples.append(sample)
            what = f"lag {sample.lag:,}, {sample.publications} publications, {sample.matured_panes} panes"
            bar.update(task, completed=sample.seconds, description=f"{rate:,.0f} scores a second; {what}")

        service.soak(rate, load_s, speed, every, tell)
    judged = warm(samples, warm_up_panes)
    found = verdicts(judged, rate)
    measured |= {
        "warm_up_minutes": judged[0].seconds / 60,
        "minutes": (judged[-1].seconds - judged[0].seconds) / 60,
        "scores_per_second": rate,
        "publications": float(judged[-1].publications - judged[0].publications),
        "matured_panes": float(judged[-1].matured_panes),
        "redis_used_megabytes": samples[-1].redis_used_bytes / 1e6,
    }
    measured |= {f"{name}_resident_megabytes": size / 1e6 for name, size in samples[-1].resident_bytes.items()}
    console.print(sample_table(samples))
    console.print(verdict_table(measured, found))
    if json_file is not None:
        json_file.write_text(as_json(measured, found, samples), encoding="utf-8")
    if svg_file is not None:
        svg_file.write_text(picture(samples), encoding="utf-8")


def sample_table(samples: Sequence[Sample]) -> Table:
    """Some of the samples, evenly over the run."""
    table = Table(
        "minute",
        *samples[0].resident_bytes,
        "lag: scores",
        "blocks",
        "labels",
        "ms 50 %",
        "ms 99 %",
        "publications",
        title="Resident MB",
    )
    step = max(1, len(samples) // _SHOWN_ROWS)
    for s in samples[::step]:
        memory = (f"{size / 1e6:.1f}" for size in s.resident_bytes.values())
        latency = (f"{s.latency_p50_ms:.0f}", f"{s.latency_p99_ms:.0f}")
        table.add_row(
            f"{s.seconds / 60:.1f}", *memory, *(f"{lag:,}" for lag in s.lags.values()), *latency, str(s.publications)
        )
    return table


def verdict_table(measured: Mapping[str, float], found: Mapping[str, Verdict]) -> Table:
    table = Table("figure", "measured", "goal", "")
    for name, value in measured.items():
        table.add_row(name, f"{value:,.1f}", "", "")
    for name, one in found.items():
        table.add_row(name, f"{one.value:.2f}", one.goal, "met" if one.met else "NOT MET")
    return table


def as_json(measured: Mapping[str, float], found: Mapping[str, Verdict], samples: Sequence[Sample]) -> str:
    document = {
        "measured": measured,
        "ratios": {"latency_last_third_to_middle": found["latency_last_third_to_middle"].value},
        "goals": {name: {"goal": one.bound, "value": one.value, "met": one.met} for name, one in found.items()},
        "samples": [
            {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in s._asdict().items()} for s in samples
        ],
    }
    return json.dumps(document, indent=2) + "\n"


if __name__ == "__main__":
    typer.run(main)
