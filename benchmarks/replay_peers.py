"""Evidently and NannyML on a prediction log, beside what cells give of the same file: for each day its drift against
the first days, and how far the probabilities are off.

All on one thread, each from opening the file on: by CPU seconds, so that what else the machine does counts little.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.package_environment import environment_of, python_with
from benchmarks.replay_runs import as_one_table, counted_of_one_table
from benchmarks.replay_traffic import write_files
from stream_calib.backtest.history import CellHistory
from stream_calib.calibration.grid import CENTRE_LOG_ODDS, N_BINS
from stream_calib.calibration.metrics.ece import debiased_squared_ece_of_counts
from stream_calib.calibration.metrics.log_loss import log_loss_of_counts
from stream_calib.drift.psi import psi_of, shares

PEERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "evidently": ("evidently==0.7.23", ("pandas<3",)),
    "nannyml": ("nannyml==0.13.1", ("pandas<3", "statsmodels")),
}
"""Name -> requirement, and what it does not run without."""
REFERENCE_DAYS = 3
_HERE = Path(__file__).parent
_ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "DO_NOT_TRACK": "1", "NML_DISABLE_USAGE_LOGGING": "1"}
_BINS = 20


class Took(NamedTuple):
    days: int
    """That were compared."""
    cpu_s: float
    wall_s: float


def compared(days: int, scores_an_hour: int) -> dict[str, Took]:
    """`ours` and the peers on one file. Raises RuntimeError where a peer fails."""
    with tempfile.TemporaryDirectory(prefix="replay-") as name:
        folder = Path(name)
        files = write_files(folder, 24 * days, scores_an_hour, lambda hours: None)
        table = folder / "log.parquet"
        as_one_table(files, table)
        return {"ours": _ours(table, files.score_rows)} | {peer: _peer(peer, table) for peer in PEERS}


def _ours(table: Path, rows: int) -> Took:
    wall, cpu = time.perf_counter(), time.process_time()
    _, history = counted_of_one_table(table, rows, "engine", 1)
    figures = daily_figures(history)
    return Took(len(figures), time.process_time() - cpu, time.perf_counter() - wall)


def _peer(peer: str, table: Path) -> Took:
    requirement, beside = PEERS[peer]
    python = python_with(requirement, environment_of(requirement), beside)
    command = [str(python), str(_HERE / f"replay_{peer}_run.py"), str(table), str(REFERENCE_DAYS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | _ALONE)
    if done.returncode:
        raise RuntimeError(f"{requirement} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return Took(**json.loads(done.stdout.splitlines()[-1]))


class Day(NamedTuple):
    psi: Mapping[str, float]
    """Of the score and of each attribute, against the reference."""
    log_loss: float
    debiased_squared_ece: float


def daily_figures(history: CellHistory) -> list[Day]:
    """Of each day after the reference, from the cells alone."""
    columns = ["score", "carrier", "origin"]
    counts: dict[int, dict[str, NDArray[np.float64]]] = defaultdict(dict)
    outcomes: dict[int, NDArray[np.int64]] = defaultdict(lambda: np.zeros((2, N_BINS), np.int64))
    codes: list[dict[str, int]] = [{} for _ in columns[1:]]
    for pane in range(history.first_pane, history.last_pane + 1):
        day = (pane - history.first_pane) // 24
        scored = history.scored(pane)
        values = {"score": scored.grid_bin.astype(np.intp)}
        distinct, place = np.unique(scored.signature, return_inverse=True)
        for i, column in enumerate(columns[1:]):
            names = [history.signatures[h][i] for h in distinct.tolist()]
            values[column] = np.array([codes[i].setdefault(n, len(codes[i])) for n in names], dtype=np.intp)[place]
        for column, value in values.items():
            found = np.bincount(value, weights=scored.n, minlength=N_BINS)
            counts[day][column] = counts[day].get(column, np.zeros(N_BINS)) + found
        if pane <= history.last_matured:
            cells = history.matured(pane)
            for row, n in enumerate((cells.labelled, cells.positives)):
                np.add.at(outcomes[day][row], cells.grid_bin, n)
    reference = {c: np.sum([counts[day][c] for day in range(REFERENCE_DAYS)], axis=0) for c in columns}
    found_days = []
    for day in range(REFERENCE_DAYS, max(counts) + 1):
        labelled, positives = outcomes[day]
        used = np.flatnonzero(labelled)
        given = 1 / (1 + np.exp(-CENTRE_LOG_ODDS[used])), labelled[used], positives[used]
        psi = {c: _psi(counts[day][c], reference[c], by_mass=c == "score") for c in columns}
        found_days.append(Day(psi, log_loss_of_counts(*given), debiased_squared_ece_of_counts(*given)))
    return found_days


def _psi(counts: NDArray[np.float64], reference: NDArray[np.float64], *, by_mass: bool) -> float:
    """Of a score in bins of equal mass in the reference, of an attribute by its values."""
    both = np.stack([counts, reference])
    if by_mass:
        bins = np.minimum(np.cumsum(reference) / reference.sum() * _BINS, _BINS - 1).astype(np.intp)
        both = np.stack([np.bincount(bins, weights=row, minlength=_BINS) for row in both])
    used = both.sum(axis=0, keepdims=True) > 0
    p, q = (shares(row[None], used) for row in both)
    return float(psi_of(p, q, used)[0])
