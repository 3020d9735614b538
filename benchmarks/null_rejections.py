"""How often the test of multicalibration rejects true probabilities, and how often it finds one wrong group.

    python benchmarks/null_rejections.py [--draws 2000] [--json FILE]

For each number of rows and of groups the probabilities and groups are drawn once; then come `draws` sets of labels that
are independent draws with these very probabilities (the null), and as many in which one group's log-odds are off by
.5. Groups overlap: they are the values of attributes and their intersection. The rate of rejections under the null has
to be at most the level, within three binomial standard errors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.special import expit, logit

from stream_calib.calibration.grid import CENTRE_LOG_ODDS, N_BINS, locate
from stream_calib.calibration.metrics import multicalibration_test_of_counts

SIZES = (2_000, 20_000, 200_000)
GROUPS = (64, 500)
LEVELS = (0.01, 0.05, 0.1)
SHIFT_LOG_ODDS = 0.5


@dataclass(frozen=True, eq=False)
class World:
    """Counts (k,) of rows by (signature, grid bin), their true probabilities, and their groups in every family."""

    labelled: NDArray[np.int64]
    probability: NDArray[np.float64]
    groups: list[NDArray[np.intp]]

    def p_value(self, positives: NDArray[np.int64]) -> float:
        return multicalibration_test_of_counts(self.probability, self.labelled, positives, self.groups).p_value


def make_world(rows: int, n_groups: int, rng: np.random.Generator) -> World:
    """64 = 4 + 12 + 4 x 12 groups, or 500 = 10 + 40 + 10 x 40 + 50; sizes fall as 1 / rank, scores are skewed."""
    first, second, third = {64: (4, 12, 0), 500: (10, 40, 50)}[n_groups]

    def attribute(values: int) -> NDArray[np.intp]:
        share = 1 / np.arange(1, values + 1)
        return rng.choice(values, rows, p=share / share.sum()).astype(np.intp)

    a, b, c = attribute(first), attribute(second), attribute(max(third, 1))
    signature = (a * second + b) * max(third, 1) + c
    grid_bin = locate(rng.beta(1.2, 6.0, rows))[0].astype(np.intp)
    cells, labelled = np.unique(signature * N_BINS + grid_bin, return_counts=True)
    pair, c = np.divmod(cells // N_BINS, max(third, 1))
    groups = [pair // second, pair % second, pair]
    return World(labelled, expit(CENTRE_LOG_ODDS[cells % N_BINS]), groups + [c] * (third > 0))


def null_p_values(world: World, draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """P-values (draws,) where all probabilities are true."""
    return np.array([world.p_value(rng.binomial(world.labelled, world.probability)) for _ in range(draws)])


def shifted_p_values(world: World, draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """P-values (draws,) where the truth of the second value of the first attribute lies `SHIFT_LOG_ODDS` higher."""
    truth = expit(logit(world.probability) + SHIFT_LOG_ODDS * (world.groups[0] == 1))
    return np.array([world.p_value(rng.binomial(world.labelled, truth)) for _ in range(draws)])


def measure(draws: int) -> Iterator[tuple[int, int, dict[str, float]]]:
    """(rows, groups, rates of rejection) of each setting."""
    for n_groups in GROUPS:
        for rows in SIZES:
            rng = np.random.default_rng([rows, n_groups])
            world = make_world(rows, n_groups, rng)
            p = null_p_values(world, draws, rng)
            rates = {f"null_{level}": float((p <= level).mean()) for level in LEVELS}
            rates["power_0.05"] = float((shifted_p_values(world, max(draws // 10, 1), rng) <= 0.05).mean())
            yield rows, n_groups, rates


def main(draws: int = 2000, json_file: Annotated[Path | None, typer.Option("--json")] = None) -> None:
    table = Table("rows", "groups", *(f"null, level {level}" for level in LEVELS), "one group off, level .05")
    measured: dict[str, float] = {}
    goals: dict[str, dict[str, float | bool]] = {}
    for rows, n_groups, rates in measure(draws):
        table.add_row(f"{rows:,}", str(n_groups), *(f"{rate:.4f}" for rate in rates.values()))
        for name, rate in rates.items():
            measured[f"{name}_rows_{rows}_groups_{n_groups}"] = rate
        for level in LEVELS:
            goal = level + 3 * float(np.sqrt(level * (1 - level) / draws))
            rate = rates[f"null_{level}"]
            goals[f"null_{level}_rows_{rows}_groups_{n_groups}"] = {"goal": goal, "value": rate, "met": rate <= goal}
    Console().print(table)
    if json_file:
        json_file.write_text(json.dumps({"measured": measured, "ratios": {}, "goals": goals}, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
