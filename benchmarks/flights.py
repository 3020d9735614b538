"""Ten months of flights, live: what the closed loop is worth beside other policies, and how often it alarms.

    make flights                                     # everything
    python -m benchmarks.flights --only defaults --days 60
    python -m benchmarks.flights --json flights.json

Three runs through a Kafka, a Redis and the four roles as processes of their own, in lock-step: the source writes a day
(an hour where the level is refitted hourly), then waits until all that it made decidable is decided, settled and
served. Prequential: a flight is served by what was current before it; labels are used from 24 hours after their score
on. Figures are over the flights from day 14 on. Before the first snapshot the raw score is served. At the end of a run
a backtest of its topics is compared with its state.

* defaults: the configuration of examples/flights (carrier, origin, dest, carrier x origin; refitted daily, gated);
* hourly: the same, the level refitted every hour;
* hour-of-day: the first, with the hour of day as a derived attribute.

Goals are for the whole year alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from benchmarks.flights_figures import GIVEN, LAST_DAY, PARTS, Alarms, Goal, Worth, alarms, worth
from benchmarks.flights_live import LiveRun, run_live
from benchmarks.flights_peers import answers
from stream_calib.config import Config
from stream_calib.config_file import tomllib
from stream_calib.demo.flights import DAY_MS, Flights, load_flights
from tests.integration.harness import Overrides, config_text
from tests.kafka_broker import KafkaBroker

HOUR_MS = 3_600_000
_WIDTH = 150
"""Columns of the output where nobody looks on."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A run of the service: settings over those of examples/flights, the period of its lock-step, its goal."""

    name: str
    overrides: Overrides
    period_ms: int
    goal: Goal


POLICIES = {
    "defaults": Policy("shipped defaults, daily, gated", {}, DAY_MS, Goal(0.5035, 2.6)),
    "hourly": Policy("the same, the level hourly", {"refit": {"level_cadence": "1h"}}, HOUR_MS, Goal(0.5025, 2.2)),
    "hour-of-day": Policy(
        "with hour of day as a derived attribute",
        {"scores": {"derived": ["hour_of_day"]}},
        DAY_MS,
        Goal(0.4985, 3.0),
    ),
}
Only = Literal["all", "peers", "defaults", "hourly", "hour-of-day"]
ByPart = Mapping[str, Worth]


@dataclass(frozen=True, slots=True)
class Found:
    """What a run of the service came to."""

    by_part: ByPart
    alarms: list[Alarms]
    refits: dict[str, int]
    """Kind, reason and outcome -> number of requests."""
    seconds: float
    differences: list[str]
    """Between the run and a backtest of its topics: none, where the backtest is exact."""


def main(
    only: Annotated[Only, typer.Option(help="One run alone, or the other policies alone")] = "all",
    days: Annotated[int, typer.Option(min=20, max=LAST_DAY, help="Only the first so many days")] = LAST_DAY,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures there too")] = None,
) -> None:
    """Streams the flights through the service and compares what was served with other policies."""
    flights, console = load_flights(), Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[what]}"),
    )
    peers: dict[str, ByPart] = {}
    found: dict[str, Found] = {}
    with Progress(*columns, console=console) as progress, ExitStack() as stack:
        if only in ("all", "peers"):
            task = progress.add_task("other policies", total=1, what="")
            peers = {name: worth(flights, p) for name, p in answers(flights, days).items()}
            progress.advance(task)
        asked = {key: policy for key, policy in POLICIES.items() if only in ("all", key)}
        broker = stack.enter_context(KafkaBroker(heap_megabytes=1024)) if asked else None
        for key, policy in asked.items():
            console.print(f"{key}: {policy.name}")
            assert broker is not None
            found[key] = judged(flights, policy, days, broker, progress)
    peers = {"raw scores": worth(flights, flights.score[: flights.days()[days - 1].scores.stop]), **peers}
    show(console, peers, found, days)
    if json_file is not None:
        json_file.write_text(json.dumps(document(peers, found, days), indent=2) + "\n", encoding="utf-8")


def judged(flights: Flights, policy: Policy, days: int, broker: KafkaBroker, progress: Progress) -> Found:
    periods = flights.periods(policy.period_ms)[: days * DAY_MS // policy.period_ms]
    run = run_live(flights, periods, policy.overrides, broker, progress)
    config = Config.model_validate(tomllib.loads(config_text(policy.overrides)))
    differences = [difference.text for difference in run.verification.differences]
    return Found(
        worth(flights, run.served), alarms(run.alerts, config.drift, days), refits(run), run.seconds, differences
    )


def refits(run: LiveRun) -> dict[str, int]:
    return dict(sorted(Counter(f"{one.kind}, {one.reason}, {one.outcome}" for one in run.reports).items()))


def show(console: Console, peers: Mapping[str, ByPart], found: Mapping[str, Found], days: int) -> None:
    """The policies, then the refits and alarms of each run of the service."""
    table = Table(
        *("policy", "log-loss / worst group error", "first half", "second half", "before", "goal"),
        title=f"Labelled flights of days 14 to {days - 1}",
    )
    for name in {**GIVEN, **peers}:
        given = GIVEN.get(name)
        table.add_row(name, *_cells(peers.get(name, {})), "" if given is None else _text(given), "")
    for key, one in found.items():
        policy = POLICIES[key]
        goal = f"{policy.goal.log_loss} / {policy.goal.worst_group_error} %"
        if days == LAST_DAY:
            goal += ", met" if policy.goal.met(one.by_part["year"]) else ", NOT met"
        table.add_row(policy.name, *_cells(one.by_part), "", goal, style="bold")
    console.print(table)
    for key, one in found.items():
        alarm_table = Table("detector", "alerts opened", "budget of false ones", title=f"{key}: {one.seconds:,.0f} s")
        for alarm in one.alarms:
            alarm_table.add_row(alarm.detector, str(alarm.opened), f"{alarm.budget:.1f}")
        console.print(alarm_table)
        console.print(f"refits: {', '.join(f'{n:,} {what}' for what, n in one.refits.items())}")
        console.print(f"a backtest of its topics: {'; '.join(one.differences) or 'the same, byte for byte'}")


def _text(one: Worth) -> str:
    return f"{one.log_loss:.5f} / {one.worst_group_error:.2f} %"


def _cells(by_part: ByPart) -> list[str]:
    return [_text(by_part[part]) if part in by_part else "" for part in PARTS]


def document(peers: Mapping[str, ByPart], found: Mapping[str, Found], days: int) -> dict[str, Any]:
    """As every benchmark writes it."""
    measured: dict[str, Any] = {name: _plain(by_part) for name, by_part in peers.items()}
    ratios, goals = dict[str, float](), dict[str, Any]()
    raw = peers["raw scores"]["year"].log_loss
    for key, one in found.items():
        measured[key] = asdict(one) | {"by_part": _plain(one.by_part)}
        year, goal = one.by_part["year"], POLICIES[key].goal
        ratios[f"{key}: log-loss of raw"] = year.log_loss / raw
        if days == LAST_DAY:
            value = len(one.differences)
            goals[f"{key}: differences of a backtest"] = {"goal": 0, "value": value, "met": value == 0}
            for figure in ("log_loss", "worst_group_error"):
                value, bound = getattr(year, figure), getattr(goal, figure)
                goals[f"{key}: {figure}"] = {"goal": bound, "value": value, "met": value <= bound}
    return {"measured": measured, "ratios": ratios, "goals": goals}


def _plain(by_part: ByPart) -> dict[str, Any]:
    return {part: asdict(one) for part, one in by_part.items()}


if __name__ == "__main__":
    typer.run(main)
