"""Audit cells: sums over (group, interval of probability), for metrics of multicalibration and of groups."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stream_calib.calibration.intervals import checked_edges, interval_of, log_odds_intervals
from stream_calib.calibration.metrics.evaluated_groups import EvaluatedGroups

DEFAULT_EDGES = log_odds_intervals()
"""The intervals of audits: 1 wide in log-odds between -7 and 7, and the two outer ones."""


@dataclass(frozen=True, slots=True)
class AuditCell:
    """One audit cell. `family` counts the given families, -1 is everything (its `group` is 0)."""

    family: int
    group: int
    interval: int
    """Place j among the intervals [edges[j], edges[j + 1]), the last one closed; -1: the whole of [0, 1]."""
    labelled: float
    positives: float
    expected: float
    """Sum of the probabilities, by weight: the positives that were to be expected."""

    @property
    def residual(self) -> float:
        """Rate - mean probability."""
        return (self.positives - self.expected) / self.labelled


@dataclass(frozen=True, slots=True, eq=False)
class AuditCells:
    """Non-empty cells, in order of family, group and interval; columns (c,), see `AuditCell`."""

    family: NDArray[np.intp]
    group: NDArray[np.intp]
    interval: NDArray[np.intp]
    labelled: NDArray[np.float64]
    positives: NDArray[np.float64]
    expected: NDArray[np.float64]
    squared: NDArray[np.float64]
    """Sums of the squared weights of the rows."""

    @property
    def residual(self) -> NDArray[np.float64]:
        return (self.positives - self.expected) / self.labelled

    @property
    def effective_rows(self) -> NDArray[np.float64]:
        """The rows where weights are equal (Kish 1965)."""
        return self.labelled * self.labelled / self.squared

    def cell(self, place: int) -> AuditCell:
        return AuditCell(
            int(self.family[place]),
            int(self.group[place]),
            int(self.interval[place]),
            float(self.labelled[place]),
            float(self.positives[place]),
            float(self.expected[place]),
        )


WHOLE_RANGE = -1
"""Number of the interval [0, 1] beside those that edges make."""


def audit_cells(evaluated: EvaluatedGroups, edges: ArrayLike) -> AuditCells:
    """Cells of everything and of every group, over intervals of probability with edges (m + 1,) from 0 to 1.

    Raises ConfigurationError for edges that do not increase from 0 to 1.
    """
    data, e = evaluated.data, checked_edges(edges)
    interval = interval_of(e, data.value)
    columns = (data.labelled, data.positives, data.labelled * data.value, data.squared)
    parts = []
    for family, group in evaluated.numbered():
        inside = slice(None) if len(group) and group.min() >= 0 else group >= 0
        groups, number = np.unique(group[inside], return_inverse=True)
        cells, cell = np.unique(number * (len(e) - 1) + interval[inside], return_inverse=True)
        keys = np.full(len(cells), family), groups[cells // (len(e) - 1)], cells % (len(e) - 1)
        parts.append((*keys, *(np.bincount(cell, column[inside], len(cells)) for column in columns)))
    return AuditCells(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def whole_groups(evaluated: EvaluatedGroups) -> AuditCells:
    """Cells of everything and of every group over all probabilities, `interval` -1."""
    cells = audit_cells(evaluated, (0.0, 1.0))
    return replace(cells, interval=np.full_like(cells.interval, WHOLE_RANGE))


def joined(one: AuditCells, other: AuditCells) -> AuditCells:
    """The cells of both."""
    pairs = ((getattr(one, column.name), getattr(other, column.name)) for column in fields(AuditCells))
    return AuditCells(*(np.concatenate(pair) for pair in pairs))
