"""Policies a minute over the packaged flights, in two processes as `stream-calib backtest --grid` runs them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.refits import CONFIG, Rows, history_of
from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.policies.grid import grid_of_texts, policies_of_grid
from stream_calib.backtest.policies.parallel import Progress, run_policies
from stream_calib.backtest.policies.policy import Policy, current_policy
from stream_calib.config import Config
from stream_calib.config_file import tomllib
from stream_calib.demo.flights import load_flights

SAME_FITS = (
    "refit.gate_margin=.005,.01,.02",
    "refit.max_age=1d,2d",
    "refit.cooldown=3h,6h,12h,1d",
    "drift.psi_threshold=.1,.15,.2,.25,.3",
)
"""Gate, cadence and triggers: more than are to be done in a minute."""
OTHER_FITS = ("calibration.structure_half_life=14d,28d", "calibration.offset_ridge=10,40")
PROCESSES = 2


@dataclass(frozen=True, slots=True)
class PoliciesTook:
    """Of one grid."""

    policies: int
    wall_s: float
    cpu_s: Sequence[float]
    """Of each policy, in the grid's order."""

    @property
    def per_minute(self) -> float:
        """By the clock, processes that start and all fits with it."""
        return 60 * self.policies / self.wall_s

    @property
    def per_cpu_minute(self) -> float:
        """Of all of them, on as many cores as there are processes."""
        return 60 * PROCESSES * self.policies / sum(self.cpu_s)


def flights_history() -> tuple[Config, CellHistory]:
    """The whole year's cells, under the demo's configuration."""
    config = Config.model_validate(tomllib.loads(CONFIG.read_text(encoding="utf-8")))
    rows = Rows(load_flights(), config)
    # The labels of the last day are final too.
    last_pane = int(rows.pane[-1]) + 2 * (config.windows.horizon_ms // config.windows.pane_ms)
    return config, history_of(config, rows, last_pane)


def policies_of(config: Config, grid: Sequence[str], share: float) -> list[Policy]:
    """The grid's policies, or so large a share of them, at least one more than there are processes. None is what the
    configuration is already."""
    base = current_policy(config).content()
    made = [policy for policy in policies_of_grid(grid_of_texts(grid), config, "benchmark") if policy.content() != base]
    return made[: max(PROCESSES + 1, round(share * len(made)))]


def timed(history: CellHistory, policies: Sequence[Policy], on_part: Callable[[float], None]) -> PoliciesTook:
    """Runs them. `on_part`: called with the number of policies done, of work."""

    def seen(progress: Progress) -> None:
        on_part(progress.done + progress.part)

    with tempfile.TemporaryDirectory(prefix="policies-") as folder:
        began = time.perf_counter()
        outcomes = run_policies(history, policies, PROCESSES, Path(folder), seen)
        wall_s = time.perf_counter() - began
    return PoliciesTook(len(policies), wall_s, [outcome.cpu_seconds for outcome in outcomes])
