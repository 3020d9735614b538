"""What the refits of a year of flights are worth, and what they cost: a replay in one process, without log and Redis.

    python benchmarks/refits.py [--days 365] [--set 'scores.derived=["hour_of_day"]'] [--json FILE]

Closer and refit are those of the service, in lock-step over the cells (stream_calib/backtest/policies/stepping.py):
pane by pane is decided, and a request is answered at once. What is published serves from the first pane before which
the labels that decided it must have come. Log-loss and worst group error are over all rows from the fifteenth day on,
per raw score and as served, and over either half of these days.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.flights_figures import worth
from stream_calib.backtest.history import CellHistory, PaneBlobs
from stream_calib.backtest.policies.stepping import Stepper
from stream_calib.calibration.grid import locate
from stream_calib.calibration.metrics import auc, log_loss, worst_group_error
from stream_calib.config import Config
from stream_calib.config_file import tomllib
from stream_calib.config_identity import configured_keys, semantic_hash
from stream_calib.demo.flights import DAY_MS, Flights, load_flights
from stream_calib.events.identity import fingerprints, signature_hash, unit_buckets
from stream_calib.refit.gate_evidence import JudgedMap, judged
from stream_calib.snapshot.report import RefitReport
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.panes import PaneSettings

CONFIG = Path(__file__).parents[1] / "examples" / "flights" / "stream-calib.toml"
WARM_UP_DAYS = 14
_ASKED = ("slopes", "derived", "patches")
"""First words of what comes on with proof only."""


class Rows:
    """The flights that have an outcome within the horizon, in the order of their event times; columns (n,)."""

    def __init__(self, flights: Flights, config: Config) -> None:
        label = np.full(len(flights.score), -1, np.int8)
        timely = flights.label_time_ms <= flights.score_time_ms[flights.label_row] + config.windows.horizon_ms
        label[flights.label_row[timely]] = flights.label[timely]
        self.label = label
        self.score = flights.score
        self.pane = flights.score_time_ms // config.windows.pane_ms
        self.first_ms = int(flights.score_time_ms[0])
        columns = [
            (flights.carrier, flights.carriers),
            (flights.origin, flights.origins),
            (flights.dest, flights.dests),
        ]
        codes = np.stack([codes for codes, _ in columns], axis=1)
        distinct, self.place = np.unique(codes, axis=0, return_inverse=True)
        self.values = [tuple(names[c] for c, (_, names) in zip(row, columns, strict=True)) for row in distinct.tolist()]
        hashes = [signature_hash(values) for values in self.values]
        self.dictionary = dict(zip(hashes, self.values, strict=True))
        self.signature = np.array(hashes, dtype=np.uint64)[self.place]
        self.bucket = unit_buckets(fingerprints(flights.event_id))
        self.grid_bin, _ = locate(flights.score)
        self.families = [
            flights.carrier.astype(np.intp),
            flights.origin.astype(np.intp),
            flights.carrier.astype(np.intp) * len(flights.origins) + flights.origin,
        ]

    def scored(self, rows: slice) -> ScoredCells:
        return ScoredCells.count(self.signature[rows], self.grid_bin[rows])

    def matured(self, rows: slice) -> MaturedCells:
        return MaturedCells.count(self.bucket[rows], self.signature[rows], self.grid_bin[rows], self.label[rows])


@dataclass(frozen=True, slots=True)
class Replay:
    """The lock-step of closer and refit over the rows' cells."""

    stepper: Stepper
    begin: int
    """Pane of the first row."""
    refit_seconds: list[float]
    """Of every request with the step that made it."""


def history_of(config: Config, rows: Rows, last_pane: int) -> CellHistory:
    """The cells of the rows up to a pane, with the outcomes that are final when its scores are counted."""
    settings = PaneSettings.of(config)
    first_pane = settings.first_pane(rows.first_ms)
    starts = np.searchsorted(rows.pane, np.arange(first_pane, last_pane + 2)).tolist()
    panes = [
        PaneBlobs(
            rows.scored(slice(start, end)).pack(),
            rows.matured(slice(start, end)).pack() if pane <= last_pane - settings.horizon_panes else None,
        )
        for pane, (start, end) in enumerate(pairwise(starts), first_pane)
    ]
    (key,) = configured_keys(config)
    return CellHistory(
        key=key,
        generation=semantic_hash(config),
        pane_ms=config.windows.pane_ms,
        first_pane=first_pane,
        panes=panes,
        signatures=rows.dictionary,
        start="exact",
        source="flights",
        counts={"accepted": starts[-1] - starts[0]},
    )


def replay(
    config: Config, rows: Rows, days: int, period_panes: int | None = None
) -> tuple[Replay, NDArray[np.float64]]:
    """The replay after so many days, and (n,) what was served for each of their rows.

    What is published serves from the pane on before which labels could have decided it; with `period_panes` as in a
    live run in lock-step of so many panes, from the next period on.
    """
    begin = int(rows.pane[0])
    last_pane = min(int(rows.pane[-1]), begin + days * DAY_MS // config.windows.pane_ms - 1)
    stepper = Stepper(history_of(config, rows, last_pane), config)
    made = Replay(stepper, begin, [])
    for pane in range(stepper.history.first_pane, stepper.last_pane + 1):
        started = time.process_time()
        if stepper.step(pane) is not None:
            made.refit_seconds.append(time.process_time() - started)
    end = int(np.searchsorted(rows.pane, last_pane + 1))
    p = rows.score[:end].copy()
    published = stepper.publications()
    firsts = [one.serves_from for one in published]
    if period_panes is not None:
        firsts = [begin - (begin - first) // period_panes * period_panes for first in firsts]
    for publication, (first, until) in zip(published, pairwise([*firsts, last_pane + 1]), strict=True):
        own = slice(*np.searchsorted(rows.pane, (first, min(until, last_pane + 1))).tolist())
        if own.start < own.stop:
            p[own] = serve(judged(stepper.store.load(publication.version)), rows, own)
    return made, p


def serve(judged_map: JudgedMap, rows: Rows, chosen: slice) -> NDArray[np.float64]:
    """What the map gives for the rows of one pane."""
    place, values = rows.place[chosen], rows.values
    if judged_map.derived is not None:
        place, values = judged_map.derived.extend(place, values, rows.pane[chosen])
    return judged_map.served.apply(rows.score[chosen], place, values)


def chosen_things(reports: Sequence[RefitReport]) -> dict[str, int]:
    """In how many structure refits each thing was on, or a configured family off."""
    found: Counter[str] = Counter()
    for report in reports:
        choices = report.choices
        if choices is not None:
            found[f"rung {choices.rung}"] += 1
            found.update(f"{name} off" for name in choices.families_off)
            found.update(figure.name for figure in choices.figures if figure.on and figure.name.split()[0] in _ASKED)
            found["certified"] += report.certificate is not None and report.certificate.certified
    return dict(sorted(found.items()))


def quality(rows: Rows, p: NDArray[np.float64]) -> dict[str, float]:
    """Over the labelled rows from the fifteenth day on."""
    n = len(p)
    used = (rows.label[:n] >= 0) & (rows.pane[:n] >= rows.pane[0] + WARM_UP_DAYS * 24)
    label = rows.label[:n][used]
    return {
        "log_loss": log_loss(label, p[used]),
        "worst_group_error_percent": worst_group_error(label, p[used], [f[:n][used] for f in rows.families]),
        "auc": auc(label, p[used]),
    }


def main(
    days: Annotated[int, typer.Option(help="Days of the year that are replayed")] = 365,
    set_value: Annotated[list[str] | None, typer.Option("--set", help="section.key=JSON of the configuration")] = None,
    json_file: Annotated[Path | None, typer.Option("--json")] = None,
) -> None:
    document: dict[str, Any] = tomllib.loads(CONFIG.read_text(encoding="utf-8"))
    for assignment in set_value or []:
        key, _, value = assignment.partition("=")
        section, _, name = key.partition(".")
        document.setdefault(section, {})[name] = json.loads(value)
    config = Config.model_validate(document)
    flights = load_flights()
    rows = Rows(flights, config)
    started = time.process_time()
    made, p = replay(config, rows, days)
    seconds = time.process_time() - started
    reports = made.stepper.reports
    outcomes = Counter(report.outcome for report in reports)
    raw, calibrated = quality(rows, rows.score[: len(p)]), quality(rows, p)
    parts = {part: asdict(one) for part, one in worth(flights, p).items()}
    measured = {
        "raw": raw,
        "calibrated": calibrated,
        "parts": parts,
        "refits": dict(outcomes),
        "chosen": chosen_things(reports),
        "seconds": seconds,
        "seconds_a_refit": float(np.mean(made.refit_seconds)),
        "slowest_refit_seconds": float(np.max(made.refit_seconds)),
    }
    table = Table("figure", "raw score", "as served")
    for name in raw:
        table.add_row(name, f"{raw[name]:.5f}", f"{calibrated[name]:.5f}")
    console = Console()
    console.print(table)
    console.print(f"refits: {dict(outcomes)}; {seconds:.0f} s in all, {measured['seconds_a_refit']:.3f} s a refit")
    for part, one in parts.items():
        console.print(f"{part}: log-loss {one['log_loss']:.5f}, worst group error {one['worst_group_error']:.2f} %")
    console.print(f"chosen: {measured['chosen']}")
    if json_file is not None:
        ratios = {"log_loss_of_raw": calibrated["log_loss"] / raw["log_loss"]}
        json_file.write_text(json.dumps({"measured": measured, "ratios": ratios, "goals": {}}, indent=1))


if __name__ == "__main__":
    typer.run(main)
