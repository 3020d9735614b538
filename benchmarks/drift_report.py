"""Figures of benchmarks/drift.py: what was measured, which goals are met, and the tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.drift_runs import Delays, FalseAlarms
from benchmarks.drift_speed import PaneCost


class Goal(NamedTuple):
    value: float
    at_least: bool
    """Else at most."""

    def met(self, value: float) -> bool:
        return value >= self.value if self.at_least else value <= self.value


@dataclass(slots=True)
class Report:
    """Grows part by part."""

    measured: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    goals: dict[str, dict[str, float | bool]] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)

    def judge(self, name: str, value: float, goal: Goal) -> None:
        self.goals[name] = {"goal": goal.value, "value": value, "met": goal.met(value)}

    def add_false_alarms(self, what: str, found: Mapping[str, FalseAlarms]) -> None:
        table = Table("detector", title=f"{what}: false alarms per 10^6 labelled events")
        for column in ("events", "alarms", "per 10^6", "95 % interval"):
            table.add_column(column, justify="right")
        for name, alarms in found.items():
            lower, upper = alarms.interval
            row = f"{alarms.events:,}", f"{alarms.alarms:,}", f"{alarms.rate:.3g}", f"{lower:.3g} .. {upper:.3g}"
            table.add_row(name, *row)
            self.measured[f"{what}, {name}, false alarms per 10^6"] = alarms.rate
            self.measured[f"{what}, {name}, false alarms per 10^6, upper"] = upper
        self.tables.append(table)

    def add_delays(self, what: str, found: Mapping[str, Delays]) -> None:
        table = Table("detector", title=f"{what}: group events until it is detected")
        for column in ("median", "90 %", "detected"):
            table.add_column(column, justify="right")
        for name, delays in found.items():
            levels = {"median": delays.quantile(0.5), "90 %": delays.quantile(0.9)}
            shown = ("-" if level == float("inf") else f"{level:,.0f}" for level in levels.values())
            table.add_row(name, *shown, f"{100 * delays.detected:.1f} %")
            self.measured[f"{what}, {name}, detected"] = delays.detected
            for level, value in levels.items():
                if value < float("inf"):
                    self.measured[f"{what}, {name}, {level} delay"] = value
        self.tables.append(table)

    def add_costs(self, what: str, costs: list[PaneCost]) -> None:
        table = Table("labelled events", title=what)
        for column in ("pairs", "milliseconds", "events a second"):
            table.add_column(column, justify="right")
        for cost in costs:
            rate = (
                f"{cost.events_per_second:,.3g}" if cost.events_per_second > 1e9 else f"{cost.events_per_second:,.0f}"
            )
            table.add_row(f"{cost.events:,}", f"{cost.pairs:,}", f"{1e3 * cost.seconds:.1f}", rate)
            self.measured[f"events per second, panes of {cost.events}"] = cost.events_per_second
        self.tables.append(table)

    def print(self, console: Console) -> None:
        for table in self.tables:
            console.print(table)
        table = Table("goal", "", title="Goals")
        table.add_column("value", justify="right")
        table.add_column("goal", justify="right")
        for name, goal in self.goals.items():
            table.add_row(name, "met" if goal["met"] else "NOT MET", f"{goal['value']:,.4g}", f"{goal['goal']:,.4g}")
        console.print(table)

    def document(self) -> dict[str, object]:
        return {"measured": self.measured, "ratios": self.ratios, "goals": self.goals}
