"""River's detectors, event by event, in an environment of their own.

    python drift_river_run.py JOB.npz

Nothing of this project is imported here. The job holds `residuals` (groups, events), and `changes_at`: a group ends
with its first alarm from this event on. Written beside it, as JOB.npz.result.npz: for each detector the alarms as
`NAME.group` and `NAME.event`. Each group has a detector of its own, with River's defaults.
"""

from __future__ import annotations

import sys

import numpy as np
from river import drift

DETECTORS = {"ADWIN": drift.ADWIN, "PageHinkley": drift.PageHinkley}


def run(path: str) -> None:
    with np.load(path) as job:
        residuals, changes_at = job["residuals"].astype(float).tolist(), int(job["changes_at"])
    found: dict[str, np.ndarray] = {}
    for name, make in DETECTORS.items():
        alarms = []
        for group, row in enumerate(residuals):
            detector = make()
            for event, value in enumerate(row):
                detector.update(value)
                if detector.drift_detected:
                    alarms.append((group, event))
                    if event >= changes_at:
                        break
        alarms_of = np.array(alarms, dtype=np.int64).reshape(-1, 2)
        found |= {f"{name}.group": alarms_of[:, 0], f"{name}.event": alarms_of[:, 1]}
    np.savez(f"{path}.result.npz", **found)  # type: ignore[arg-type]  # savez's other keyword is a bool


if __name__ == "__main__":
    run(sys.argv[1])
