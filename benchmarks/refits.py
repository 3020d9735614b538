"""What the refits of a year of flights are worth, and what they cost: a replay in one process, without log and Redis.

    python benchmarks/refits.py [--days 365] [--set 'scores.derived=["hour_of_day"]'] [--json FILE]

Closer and refit are those of the service, in lock-step over a state in memory: a pane closes, the pane whose labels are
24 hours old by then is decided, and an open request is answered at once. Scores of the next pane are served by what is
current then. Log-loss and worst group error are over all rows from the fifteenth day on, per raw score and as served,
and over either half of these days.
"""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.flights_figures import worth
from stream_calib.calibration.grid import locate
from stream_calib.calibration.metrics import auc, log_loss, worst_group_error
from stream_calib.config import Config
from stream_calib.config_file import tomllib
from stream_calib.config_identity import configured_keys, semantic_hash
from stream_calib.demo.flights import DAY_MS, Flights, load_flights
from stream_calib.events.identity import fingerprints, signature_hash, unit_buckets
from stream_calib.refit.decider import Decider
from stream_calib.refit.gate_evidence import JudgedMap, judged
from stream_calib.refit.settings import panes_of
from stream_calib.refit.worker import Refitter
from stream_calib.snapshot.changes import REFIT_LEASE
from stream_calib.snapshot.decision_log import chain
from stream_calib.snapshot.log_reader import LogReader
from stream_calib.snapshot.report import RefitReport
from stream_calib.snapshot.store import SnapshotStore
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.pane_record import chained
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.state_store import Commit

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


class Replay:
    """Closer and refit in lock-step over a state in memory."""

    def __init__(self, config: Config, rows: Rows) -> None:
        self.config, self.rows = config, rows
        self.now_ms = 0
        (key,) = configured_keys(config)
        generation = semantic_hash(config)
        self.first_pane = PaneSettings.of(config).first_pane(rows.first_ms)
        self.state = MemoryState(self.clock)
        self.state.put_signatures(rows.dictionary, 0)
        self.state.commit(Commit(fields={"first_pane": str(self.first_pane), "decided": str(self.first_pane - 1)}))
        self.store = SnapshotStore(self.state, key, generation, config.windows.pane_ms, self.clock)
        token = self.state.acquire_lease(REFIT_LEASE, "replay", 10**12)
        assert token is not None
        self.token = token
        self.refitter = Refitter(self.state, self.store, key, config)
        reads = self.state.signatures, self.store.reference, self.store.load
        self.decider = Decider(key, generation, self.first_pane, config, *reads)
        self.reader = LogReader(self.state)
        self.reports: list[RefitReport] = []
        self.refit_seconds: list[float] = []
        self._scored: dict[int, ScoredCells] = {}
        self._chain = ""

    def clock(self) -> int:
        self.now_ms += 1
        return self.now_ms

    def served(self) -> JudgedMap | None:
        """The map that is current now."""
        version = self.store.current()
        return None if version is None else judged(self.store.load(version))

    def close(self, pane: int, rows: slice, matured_rows: slice) -> bool:
        """Closes the pane with its rows, then decides the pane that lies the horizon back, and answers its request.

        Whether a snapshot was published.
        """
        self._scored[pane] = self.rows.scored(rows)
        decided = pane - self.decider.horizon_panes
        if decided < self.first_pane:
            return False
        matured = self.rows.matured(matured_rows)
        blob = matured.pack()
        self._chain = chained(self._chain, blob)
        self.state.commit(Commit(blobs={f"matured:{decided}": blob}))
        fields, log = self.reader.read(["decided", "detector"])
        for missing in self.decider.missing(decided):
            self.decider.push(missing, self._scored.pop(missing))
        made = self.decider.decide(decided, fields["detector"], log, matured, self._chain)
        new = {"decided": str(decided), "detector": made.detector, "open_request": made.open_request}
        if made.decisions:
            new |= {"tip": str(chain(log.tip, made.decisions)), "log_length": str(log.length + 1)}
        appends = {"decisions": made.decisions, "outbox": made.outbox}
        self.state.commit(Commit({"decided": fields["decided"], "tip": fields["tip"]}, new, appends))
        if not made.open_request:
            return False
        started = time.process_time()
        report = self.refitter.run_once(self.token)
        self.refit_seconds.append(time.process_time() - started)
        assert report is not None
        self.reports.append(report)
        return report.outcome == "published"


def replay(
    config: Config, rows: Rows, days: int, period_panes: int | None = None
) -> tuple[Replay, NDArray[np.float64]]:
    """The replay after so many days, and (n,) what was served for each of their rows.

    What is published serves from the next pane on; with `period_panes` as in a live run in lock-step of so many panes,
    which decides a pane at the end of a period, once the lateness of labels is over too.
    """
    made = Replay(config, rows)
    begin = int(rows.pane[0])
    last_pane = min(int(rows.pane[-1]), begin + days * DAY_MS // config.windows.pane_ms - 1)
    starts = np.searchsorted(rows.pane, np.arange(made.first_pane, last_pane + 2)).tolist()
    p = rows.score[: starts[-1]].copy()
    late = panes_of(config.windows.label_lateness_ms, config.windows.pane_ms)
    served: JudgedMap | None = None
    published = deque[tuple[int, JudgedMap | None]]()
    for i, pane in enumerate(range(made.first_pane, last_pane + 1)):
        of_pane = slice(starts[i], starts[i + 1])
        while published and published[0][0] <= pane:
            served = published.popleft()[1]
        if served is not None:
            p[of_pane] = serve(served, rows, of_pane)
        back = max(i - made.decider.horizon_panes, 0)
        if made.close(pane, of_pane, slice(starts[back], starts[back + 1])):
            first = pane + 1
            if period_panes is not None:
                first = begin - (begin - first - late) // period_panes * period_panes
            published.append((first, made.served()))
    return made, p


def serve(judged_map: JudgedMap, rows: Rows, chosen: slice) -> NDArray[np.float64]:
    """What the map gives for the rows of one pane."""
    place, values = rows.place[chosen], rows.values
    if judged_map.derived is not None:
        place, values = judged_map.derived.extend(place, values, rows.pane[chosen])
    return judged_map.served.apply(rows.score[chosen], place, values)


def chosen_things(reports: list[RefitReport]) -> dict[str, int]:
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
    outcomes = Counter(report.outcome for report in made.reports)
    raw, calibrated = quality(rows, rows.score[: len(p)]), quality(rows, p)
    parts = {part: asdict(one) for part, one in worth(flights, p).items()}
    measured = {
        "raw": raw,
        "calibrated": calibrated,
        "parts": parts,
        "refits": dict(outcomes),
        "chosen": chosen_things(made.reports),
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
