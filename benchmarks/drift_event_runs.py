"""The same for who looks at every event: ours with panes of one event a group, and the oracle."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks.drift_detectors import Oracle, Residual
from benchmarks.drift_runs import HORIZON, Advance, Delays, FalseAlarms
from benchmarks.drift_traffic import LAWS, PER_WINDOW, SERVED, SHIFT
from stream_calib.calibration.grid import locate
from stream_calib.drift.residual import ResidualSums

NULL_GROUPS = 5_000
"""Without a change, side by side: what a group does, does not depend on how many there are."""
_CHUNK = 100
OURS, ORACLE = "residual e-detectors, every event", "oracle, every event"


def event_null_alarms(law: str, events: int, advance: Advance) -> dict[str, FalseAlarms]:
    """`events`: of all groups together. Tells of panes of one event a group."""
    rng = np.random.default_rng([8, list(LAWS).index(law)])
    ours, oracle = Residual(NULL_GROUPS), Oracle(NULL_GROUPS)
    found = {OURS: 0, ORACLE: 0}
    panes = events // NULL_GROUPS
    for number, (grid_bin, positive) in enumerate(_events(law, rng, NULL_GROUPS, panes, panes)):
        found[OURS] += len(ours.look(_sums(grid_bin, positive)))
        found[ORACLE] += len(oracle.look(grid_bin, positive))
        if (number + 1) % _CHUNK == 0:
            advance(_CHUNK)
    return {name: FalseAlarms(alarms, panes * NULL_GROUPS) for name, alarms in found.items()}


def event_delays(law: str, runs: int, warm_up: int, advance: Advance) -> dict[str, Delays]:
    """As `delays` of drift_runs.py; ends when all have found it. Tells of windows."""
    rng = np.random.default_rng([9, list(LAWS).index(law), warm_up])
    ours, oracle = Residual(runs), Oracle(runs)
    first = {OURS: np.full(runs, np.inf), ORACLE: np.full(runs, np.inf)}
    changes_at = warm_up * PER_WINDOW
    drawn = _events(law, rng, runs, changes_at + HORIZON * PER_WINDOW, changes_at)
    for number, (grid_bin, positive) in enumerate(drawn):
        alarming = np.array(ours.look(_sums(grid_bin, positive)), np.intp)
        alarms = {OURS: alarming, ORACLE: oracle.look(grid_bin, positive)}
        if number >= changes_at:
            for name, groups in alarms.items():
                first[name][groups] = np.minimum(first[name][groups], number - changes_at + 1)
        if (number + 1) % PER_WINDOW == 0:
            advance(1)
            if all(np.isfinite(found).all() for found in first.values()):
                break
    return {name: Delays(found) for name, found in first.items()}


def _sums(grid_bin: NDArray[np.intp], positive: NDArray[np.bool_]) -> ResidualSums:
    one = np.ones(len(grid_bin), np.int64)
    return ResidualSums(np.arange(len(grid_bin)), SERVED[grid_bin], one, positive.astype(np.int64))


def _events(
    law: str, rng: np.random.Generator, groups: int, panes: int, changes_at: int
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.bool_]]]:
    """Grid bins and labels (groups,) of one event of each, pane by pane."""
    for start in range(0, panes, _CHUNK):
        size = min(_CHUNK, panes - start)
        grid_bin = locate(rng.beta(*LAWS[law], size=size * groups))[0].astype(np.intp).reshape(size, groups)
        shift = SHIFT * (np.arange(start, start + size) >= changes_at)
        positive = rng.random(grid_bin.shape) < SERVED[grid_bin] + shift[:, None]
        yield from zip(grid_bin, positive, strict=True)
