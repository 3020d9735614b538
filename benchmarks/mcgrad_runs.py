"""Runs of MCGrad in an environment of its own, which it needs for torch and LightGBM: made once, then kept."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.package_environment import environment_of, python_with

MCGRAD = "mcgrad==0.1.5"
HERE = Path(__file__).parent

How = Literal["holdout", "default"]
"""How MCGrad finds its number of rounds: on a holdout, or as by default (below 2.5 million rows: five folds)."""


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """What is fitted, columns (n,), and what is predicted, columns (m,). Attributes are codes: 0, 1, ..."""

    score: NDArray[np.float64]
    label: NDArray[np.int64]
    attributes: Mapping[str, NDArray[np.intp]]
    test_score: NDArray[np.float64]
    test_attributes: Mapping[str, NDArray[np.intp]]
    weight: NDArray[np.float64] | None = None

    def save(self, path: Path) -> None:
        columns = {f"train.{name}": codes for name, codes in self.attributes.items()}
        columns |= {f"test.{name}": codes for name, codes in self.test_attributes.items()}
        if self.weight is not None:
            columns["weight"] = self.weight  # type: ignore[assignment]  # one dict for columns of several dtypes
        np.savez(path, score=self.score, label=self.label, test_score=self.test_score, **columns)  # type: ignore[arg-type]  # savez's other keyword is a bool


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """`probability` (m,) of the test rows; CPU seconds of the fit."""

    probability: NDArray[np.float64]
    seconds: float


class McGrad:
    """Fits jobs with the MCGrad of one environment, with one thread, as everything that it is compared with."""

    def __init__(self, environment: Path) -> None:
        """Makes the environment in this folder unless it is there. Raises CalledProcessError where pip fails."""
        self._python = python_with(MCGRAD, environment)

    def run(self, how: How, jobs: Sequence[Job]) -> list[Outcome]:
        """Fits and applies the jobs one after the other. Raises RuntimeError with what MCGrad said where one fails."""
        with tempfile.TemporaryDirectory(prefix="mcgrad-") as folder:
            paths = [Path(folder) / f"{number}.npz" for number in range(len(jobs))]
            for job, path in zip(jobs, paths, strict=True):
                job.save(path)
            command = [str(self._python), str(HERE / "mcgrad_fit.py"), how, *map(str, paths)]
            one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=one_thread)
            if done.returncode:
                raise RuntimeError(f"MCGrad ended with {done.returncode}:\n{done.stderr[-2000:]}")
            return [_outcome(path) for path in paths]


def default_environment() -> Path:
    """Under the user's cache."""
    return environment_of(MCGRAD)


def _outcome(path: Path) -> Outcome:
    with np.load(f"{path}.result.npz") as result:
        return Outcome(result["probability"], float(result["seconds"]))
