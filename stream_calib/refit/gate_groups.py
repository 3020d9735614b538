"""What the gate finds in groups: which are harmed, which are better off, and where harm could not have been seen.

Harm is judged at a simultaneous lower bound: Bonferroni over the groups that can be judged, Student's t of the group's
days, and as error the largest of days, unit buckets, and what the labels have by the probabilities themselves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from stream_calib.calibration.groups import CellGroups
from stream_calib.refit.gate_rows import GateCells, GateLosses, block_errors, blocks_seen
from stream_calib.snapshot.report_documents import Verdict

GROUP_HARM_TOLERANCE = 0.05
"""Share of a group's loss."""
MIN_GROUP_ROWS = 10
GROUP_LEVEL = 0.05
"""Probability that any group at all is said to be beyond a limit, and is not."""


@dataclass(frozen=True, slots=True)
class JudgedGroup:
    """One group that has rows; means are by weight."""

    family: int
    """Its place among `GateCells.families`; the next its place in the family."""
    group: int
    name: str
    rows: int
    gain: float
    """Mean log-loss that the candidate saves a row."""
    error: float
    """Standard error of the gain; nan where there is none."""
    loss: float
    """Mean log-loss of what is served."""
    half_width: float
    """Of the simultaneous one-sided bounds on the gain; nan where the group cannot be judged."""

    @property
    def harm_lower(self) -> float:
        """Lower bound on the log-loss that the candidate adds."""
        return -self.gain - self.half_width

    @property
    def verdict(self) -> Verdict:
        tolerance = GROUP_HARM_TOLERANCE * self.loss
        if math.isnan(self.half_width):
            return "underpowered"
        if self.harm_lower > tolerance:
            return "harmed"
        if self.gain - self.half_width > 0:
            return "better"
        return "underpowered" if self.half_width > tolerance else "not_harmed"


def judge_groups(cells: GateCells, losses: GateLosses) -> list[JudgedGroup]:
    """Every group that has rows, family by family."""
    if not len(cells.labelled):
        return []
    found: list[tuple[int, int, str, int, float, float, float, int]] = []
    for number, family in enumerate(cells.families):
        found += [(number, *figures) for figures in _figures(cells, losses, family)]
    judged = sum(_can_be_judged(rows, error) for _, _, _, rows, _, error, _, _ in found)
    return [
        JudgedGroup(number, group, name, rows, gain, error, loss, _half_width(rows, error, days, judged))
        for number, group, name, rows, gain, error, loss, days in found
    ]


def simultaneous_quantile(blocks: int, comparisons: int) -> float:
    """What a standard error of `blocks` blocks is multiplied by, for one of so many one-sided bounds to hold with all
    others. So far out a variance of few days needs Student's t."""
    return float(stdtrit(blocks - 1, 1 - GROUP_LEVEL / comparisons))


def _can_be_judged(rows: int, error: float) -> bool:
    return rows >= MIN_GROUP_ROWS and not math.isnan(error)


def _half_width(rows: int, error: float, days: int, judged: int) -> float:
    return error * simultaneous_quantile(days, judged) if _can_be_judged(rows, error) else math.nan


def _figures(
    cells: GateCells, losses: GateLosses, family: CellGroups
) -> list[tuple[int, str, int, float, float, float, int]]:
    """Of each group with rows: place, name, rows, mean gain, its error, mean loss, days."""
    inside = family.group_of >= 0
    group, size = family.group_of[inside], len(family.names)
    labelled, gain = losses.labelled[inside], losses.gain[inside]
    rows = np.bincount(group, cells.labelled[inside], size)
    weight = np.maximum(np.bincount(group, labelled, size), 1)  # no row weighs less than 1
    mean = np.bincount(group, gain, size) / weight
    loss = np.bincount(group, losses.served[inside], size) / weight
    # A small group may hold labels of one class only, whose gains are all alike: the variance that its labels have
    # by the probabilities themselves is the least that is believed.
    single = np.sqrt(np.bincount(group, losses.label_variance[inside], size)) / weight
    error = largest_error(cells.day[inside], cells.unit_bucket[inside], group, gain, labelled, single)
    days = blocks_seen(cells.day[inside], group, size)
    return [
        (i, family.names[i], int(rows[i]), float(mean[i]), float(error[i]), float(loss[i]), int(days[i]))
        for i in np.flatnonzero(rows > 0).tolist()
    ]


def largest_error(
    day: NDArray[np.int64],
    unit_bucket: NDArray[np.uint8],
    group: NDArray[np.intp],
    total: NDArray[np.float64],
    weight: NDArray[np.float64],
    least: NDArray[np.float64],
) -> NDArray[np.float64]:
    """(groups,) the largest of the errors by day, by unit bucket, and `least`; nan for a group of a single day.

    A group that is one large unit lies in a single bucket, which says nothing of its own variance: the days stand.
    """
    by_day = block_errors(day, group, len(least), total, weight)
    by_bucket = block_errors(unit_bucket, group, len(least), total, weight)
    return np.asarray(np.maximum(np.maximum(least, by_day), np.nan_to_num(by_bucket)))
