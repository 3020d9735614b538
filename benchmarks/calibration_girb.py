"""GIRB.fit beside scikit-learn's IsotonicRegression on the same rows: each fit in a process of its own.

    python -m benchmarks.calibration_girb girb|isotonic SCORES.npy LABELS.npy

prints CPU seconds of one fit, and how many bytes of memory it held at most beyond those held before (read off Linux's
/proc). Labels are float64, which IsotonicRegression would make of others, at a cost of its own.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.isotonic import IsotonicRegression

from stream_calib.calibration import GIRB

KINDS = {"girb": GIRB, "isotonic": lambda: IsotonicRegression(out_of_bounds="clip")}
_WARM_UP_ROWS = 1_000


def measure_girb(rows: int, rounds: int, step: Callable[[str], None]) -> tuple[dict[str, float], dict[str, float]]:
    """Figures and ratios: medians over the rounds, in each of which both fit the same rows one after the other."""
    runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory(prefix="calibration-") as folder:
        random = np.random.default_rng(5)
        score = 1 / (1 + np.exp(-random.normal(-2.0, 1.3, rows)))
        paths = [str(Path(folder) / name) for name in ("scores.npy", "labels.npy")]
        np.save(paths[0], score)
        np.save(paths[1], (random.random(rows) < score**1.2).astype(np.float64))
        del score
        for number in range(rounds):
            for kind, found in runs.items():
                step(f"{kind}, {rows:,} rows, run {number + 1} of {rounds}")
                command = [sys.executable, "-m", "benchmarks.calibration_girb", kind, *paths]
                root = Path(__file__).parents[1]
                found.append(json.loads(subprocess.run(command, check=True, capture_output=True, cwd=root).stdout))
    figures = {
        f"{kind}_fit_{unit}": statistics.median(run[unit] for run in found)
        for kind, found in runs.items()
        for unit in ("seconds", "extra_bytes")
    }
    pairs = list(zip(runs["girb"], runs["isotonic"], strict=True))
    ratios = {
        "girb_speed_of_isotonic": statistics.median(b["seconds"] / a["seconds"] for a, b in pairs),
        "girb_memory_of_isotonic": statistics.median(a["extra_bytes"] / b["extra_bytes"] for a, b in pairs),
    }
    return figures, ratios


def one_fit(kind: str, score_path: str, label_path: str) -> dict[str, float]:
    """Seconds and bytes of one fit in this process."""
    score, label = np.load(score_path), np.load(label_path)
    KINDS[kind]().fit(score[:_WARM_UP_ROWS].copy(), label[:_WARM_UP_ROWS].copy())
    # The peak so far, of imports say, is forgotten: what the fit does not reach must not hide what it needs.
    Path("/proc/self/clear_refs").write_text("5")
    before = memory_bytes("VmRSS")
    started = time.process_time()
    KINDS[kind]().fit(score, label)
    seconds = time.process_time() - started
    return {"seconds": seconds, "extra_bytes": float(max(memory_bytes("VmHWM") - before, 1))}


def memory_bytes(name: str) -> int:
    """Resident memory of this process: now (VmRSS) or at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{name}:"))
    return 1024 * int(line.split()[1])


if __name__ == "__main__":
    print(json.dumps(one_fit(*sys.argv[1:4])))
