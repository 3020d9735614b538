"""The methods that are compared, each as its own documentation has it used, with one interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from benchmarks.mcgrad_runs import How, Job, McGrad
from benchmarks.quality_data import Rows, Split, Task
from stream_calib.calibration import GIRB, Multicalibrator
from stream_calib.calibration.baselines import Identity, Isotonic, Platt
from stream_calib.calibration.calibrator import Calibrator

Answers = NDArray[np.float64]
"""(n,) probabilities of a task's rows; NaN where nobody was asked."""
Weight = NDArray[np.float64] | None

ONE_FEATURE: Mapping[str, Callable[[], Calibrator]] = {
    "identity": Identity,
    "Platt": Platt,
    "isotonic": Isotonic,
    "GIRB": GIRB,
}
MULTICALIBRATOR = "Multicalibrator"
OWN = (*ONE_FEATURE, MULTICALIBRATOR)


def answers_of(method: str, task: Task) -> Answers:
    """The answers of one of `OWN`. Raises FitError where the method refuses the rows of a split."""
    return _collected(
        task, [_answer(method, task.rows.chosen(split.train), split.weight, task, split) for split in task.splits]
    )


def answers_of_mcgrad(how: How, mcgrad: McGrad, task: Task) -> Answers:
    """Those of MCGrad."""
    jobs = [_job(task.rows.chosen(split.train), split.weight, task.rows.chosen(split.test)) for split in task.splits]
    return _collected(task, [outcome.probability for outcome in mcgrad.run(how, jobs)])


def _answer(method: str, train: Rows, weight: Weight, task: Task, split: Split) -> Answers:
    test = task.rows.chosen(split.test)
    if method in ONE_FEATURE:
        return ONE_FEATURE[method]().fit(train.score, train.label, weight).predict(test.score)
    made = Multicalibrator(intersections=task.rows.intersections)
    made.fit(train.score, train.label, train.texts(), unit_ids=train.unit, sample_weight=weight)
    return made.predict(test.score, test.texts())


def _job(train: Rows, weight: Weight, test: Rows) -> Job:
    return Job(train.score, train.label, train.codes, test.score, test.codes, weight)


def _collected(task: Task, parts: list[Answers]) -> Answers:
    answers = np.full(len(task.rows.score), np.nan)
    for split, part in zip(task.splits, parts, strict=True):
        answers[split.test] = part
    return answers
