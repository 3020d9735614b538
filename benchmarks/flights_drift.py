"""How often drift detectors alarm on the flights, day by day, with and without what keeps their budget.

    python -m benchmarks.flights_drift [--days 306] [--picture FILE] [--json FILE]

The year is replayed once (refits.py), as the service refits it. Then the residual detectors of each pane, of the
snapshot that was current there, are moved over the matured cells again: as they are; with phi = 1 (events of a pane
taken for independent); with epsilon = `drift.tolerance`, 0 (what a refit could not tell from noise taken for drift);
with neither. Alarms are those of single cells within the budget of refits; the service puts cells that alarm together
into one alert. PSI is looked at once a day, beside fixed limits without a tail.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import refits
from benchmarks.flights_drift_picture import picture
from benchmarks.flights_figures import LAST_DAY
from stream_calib.alerts.model import Alert
from stream_calib.config import Config
from stream_calib.config_file import tomllib
from stream_calib.demo.flights import DAY_MS, load_flights
from stream_calib.drift.cell_history import EVERYTHING
from stream_calib.drift.psi import KNOWN, look
from stream_calib.drift.psi_window import PsiWindow
from stream_calib.drift.residual import ResidualState, ResidualSums, WatchedCells, advance
from stream_calib.drift.residual_evidence import pane_evidence
from stream_calib.refit.outcome_watch import OutcomeWatch
from stream_calib.refit.row_weights import RowWeights
from stream_calib.refit.settings import panes_of

FIXED_PSI = (0.1, 0.25)
"""Limits that others use without asking how many rows there are."""


@dataclass(frozen=True, slots=True)
class Switch:
    """What the detectors make use of."""

    name: str
    phi: bool
    epsilon: bool

    def applied(self, watched: WatchedCells, tolerance: float) -> WatchedCells:
        made = watched if self.phi else replace(watched, phi=np.ones_like(watched.phi))
        return made if self.epsilon else replace(made, epsilon=np.full_like(watched.epsilon, tolerance))


SWITCHES = (
    Switch("as shipped", phi=True, epsilon=True),
    Switch("without epsilon", phi=True, epsilon=False),
    Switch("without phi", phi=False, epsilon=True),
    Switch("without both", phi=False, epsilon=False),
)


@dataclass(frozen=True, slots=True)
class CellAlarm:
    """Of one cell, on a day from the first."""

    day: int
    cell: str


@dataclass(frozen=True, slots=True, eq=False)
class WatchedPane:
    """What a pane is judged by, and its outcomes."""

    day: int
    watched: WatchedCells
    sums: ResidualSums


def watched_panes(made: refits.Replay) -> list[WatchedPane]:
    """The decided panes whose snapshot has detectors, in order."""
    stepper = made.stepper
    config, weights, log = stepper.config, RowWeights.of(stepper.config), stepper.log()
    found: list[WatchedPane] = []
    watch: OutcomeWatch | None = None
    for pane in track(range(stepper.history.first_pane, stepper.last_pane + 1), "counting outcomes"):
        version = log.current_at(pane)
        if version is None:
            continue
        if watch is None or watch.version != version:
            watch = OutcomeWatch(stepper.store.load(version), weights, stepper.state.signatures)
        sums, _ = watch.sums(pane, stepper.history.matured(pane))
        if sums is not None and watch.residual is not None:
            day = (pane - made.begin) * config.windows.pane_ms // DAY_MS
            found.append(WatchedPane(day, watch.residual.watched, sums))
    return found


def cell_alarms(panes: Sequence[WatchedPane], switch: Switch, config: Config) -> list[CellAlarm]:
    """Those of the residual detectors, with the switch, within the budget of refits."""
    budget_panes = config.drift.false_alarm_days * DAY_MS / config.windows.pane_ms
    state, found = ResidualState(), list[CellAlarm]()
    for one in panes:
        watched = switch.applied(one.watched, config.drift.tolerance)
        state, alarms = advance(state, watched, pane_evidence(watched, one.sums), budget_panes)
        found += [CellAlarm(one.day, alarm.name) for alarm in alarms]
    return found


def daily_psi(made: refits.Replay) -> NDArray[np.float64]:
    """(k, 2) PSI of all scores and its noise floor, for each whole day with a snapshot."""
    stepper = made.stepper
    config, history, log = stepper.config, stepper.history, stepper.log()
    panes, horizon = panes_of(config.drift.psi_window_ms, history.pane_ms), stepper.decider.horizon_panes
    window = PsiWindow(panes, list(config.scores.attributes), stepper.state.signatures)
    found = list[tuple[float, float]]()
    for pane in range(history.first_pane, stepper.last_pane + horizon + 1):
        cells = history.scored(pane)
        window.push(pane, cells.signature, cells.grid_bin, cells.n)
        version = log.current_at(pane - horizon)
        if version is None or (pane + 1 - made.begin) % panes:
            continue
        reference = stepper.store.reference(version)
        window.use(reference)
        counts = window.counts
        assert counts is not None
        result = look(reference, counts, config.drift.psi_threshold, 0.0)
        all_scores = next(i for i, group in enumerate(reference.groups) if group.attribute is None)
        if result.status[all_scores] == KNOWN:
            found.append((float(result.psi[all_scores]), float(result.floor[all_scores])))
    return np.array(found).reshape(-1, 2)


def opened(made: refits.Replay) -> dict[str, list[int]]:
    """Kind -> days from the first on which the service opened an alert of drift."""
    pane_ms = made.stepper.history.pane_ms
    found: dict[str, list[int]] = {"psi": [], "residual": [], "residual_page": [], "label_selection": []}
    for alert in map(Alert.decode, made.stepper.state.entries("outbox", 0)):
        if alert.state == "open" and alert.kind in found:
            found[alert.kind].append((alert.pane - made.begin) * pane_ms // DAY_MS)
    return found


def main(
    days: Annotated[int, typer.Option(min=20, max=LAST_DAY, help="Days of the year that are replayed")] = LAST_DAY,
    picture_file: Annotated[Path | None, typer.Option("--picture", help="Write an SVG of the days there")] = None,
    json_file: Annotated[Path | None, typer.Option("--json")] = None,
) -> None:
    """Counts the alarms of a replay of the flights."""
    console = Console()
    config = Config.model_validate(tomllib.loads(refits.CONFIG.read_text(encoding="utf-8")))
    made, _ = refits.replay(config, refits.Rows(load_flights(), config), days)
    panes = watched_panes(made)
    by_switch = {switch.name: cell_alarms(panes, switch, config) for switch in SWITCHES}
    alerts, psi = opened(made), daily_psi(made)
    watched_days = panes[-1].day - panes[0].day + 1
    excess = psi[:, 0] - psi[:, 1]
    show(console, by_switch, alerts, watched_days / config.drift.false_alarm_days, watched_days)
    shares = {f"PSI > {limit:g}": float((psi[:, 0] > limit).mean()) for limit in FIXED_PSI}
    shares[f"excess > {config.drift.psi_threshold:g}"] = float((excess > config.drift.psi_threshold).mean())
    ratio = float(np.median(psi[:, 0] / psi[:, 1]))
    said = ", ".join(f"{name} on {share:.0%}" for name, share in shares.items())
    console.print(f"PSI of all scores, {len(psi)} days: {said}; median PSI / noise floor {ratio:.1f}")
    if picture_file is not None:
        cells = {name: [alarm.day for alarm in alarms] for name, alarms in by_switch.items()}
        picture_file.write_text(picture(cells, days), encoding="utf-8")
    if json_file is not None:
        measured = {
            "alarms": {name: [[a.day, a.cell] for a in alarms] for name, alarms in by_switch.items()},
            "alerts": alerts,
            "watched_days": watched_days,
            "psi": shares,
            "psi by noise floor": ratio,
        }
        json_file.write_text(json.dumps({"measured": measured, "ratios": {}, "goals": {}}, indent=1) + "\n")


def show(
    console: Console,
    by_switch: Mapping[str, Sequence[CellAlarm]],
    alerts: Mapping[str, Sequence[int]],
    budget: float,
    watched_days: int,
) -> None:
    table = Table("residual detectors", "alarms of cells", "days with one", "cells", "of everything", "budget")
    for name, alarms in by_switch.items():
        cells = {alarm.cell for alarm in alarms}
        everything = sum(alarm.cell == EVERYTHING for alarm in alarms)
        days = len({alarm.day for alarm in alarms})
        table.add_row(name, str(len(alarms)), str(days), str(len(cells)), str(everything), f"{budget:.1f}")
    console.print(table)
    counts = ", ".join(f"{kind} {len(days)}" for kind, days in alerts.items())
    console.print(f"alerts that the service opened in {watched_days} days with detectors: {counts}")


if __name__ == "__main__":
    typer.run(main)
