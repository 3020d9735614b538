"""What River's detectors say to streams of residuals."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.package_environment import environment_of, python_with

RIVER = "river==0.26.1"
DETECTORS = ("ADWIN", "PageHinkley")


def river_alarms(residuals: NDArray[np.float32], changes_at: int) -> dict[str, NDArray[np.int64]]:
    """(alarms, 2) group and event of each alarm, by detector, in residuals (groups, events) of label - served; a group
    ends with its first alarm from event `changes_at` on.

    Raises RuntimeError with what River said where it fails.
    """
    with tempfile.TemporaryDirectory(prefix="river-") as folder:
        job = Path(folder) / "job.npz"
        np.savez(job, residuals=residuals, changes_at=changes_at)
        command: Sequence[str] = [
            str(python_with(RIVER, environment_of(RIVER))),
            str(Path(__file__).parent / "drift_river_run.py"),
            str(job),
        ]
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=one_thread)
        if done.returncode:
            raise RuntimeError(f"River ended with {done.returncode}:\n{done.stderr[-2000:]}")
        with np.load(f"{job}.result.npz") as result:
            return {
                name: np.column_stack([result[f"{name}.group"], result[f"{name}.event"]]).astype(np.int64)
                for name in DETECTORS
            }
