"""Table of groups: rate against mean probability, with intervals that hold for all groups at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stream_calib.calibration.metrics.audit_cells import AuditCells, whole_groups
from stream_calib.calibration.metrics.binomial_bounds import clopper_pearson
from stream_calib.calibration.metrics.evaluated_groups import EvaluatedGroups
from stream_calib.calibration.metrics.parameters import checked_confidence, checked_overdispersion


@dataclass(frozen=True, slots=True, eq=False)
class GroupTable:
    """One line for everything (family -1, group 0) and each group with labels, in this order; columns (g,).

    `family`, `group` intp: numbers as given; `labelled`, `positives`: weight; `mean_probability`, `rate`: weighted
    means; `residual`: rate - mean probability; `lower`, `upper`: bounds on the true residual, the mean true probability
    of the group's rows less their mean probability.
    """

    family: NDArray[np.intp]
    group: NDArray[np.intp]
    labelled: NDArray[np.float64]
    positives: NDArray[np.float64]
    mean_probability: NDArray[np.float64]
    rate: NDArray[np.float64]
    residual: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]


def group_table(
    label: ArrayLike,
    probability: ArrayLike,
    groups: Sequence[ArrayLike],
    weight: ArrayLike | None = None,
    *,
    confidence: float = 0.95,
    overdispersion: float = 1.0,
) -> GroupTable:
    """Residual of each group; with probability `confidence` all intervals hold together, however groups overlap.

    Clopper-Pearson at n / `overdispersion`, Bonferroni over the lines; n: effective rows where weights differ, which is
    an approximation as any overdispersion is (`binomial_bounds`). Shapes and errors: as `EvaluatedGroups.of_rows`;
    ConfigurationError for `confidence` outside (0, 1) or `overdispersion` below 1.
    """
    cells = whole_groups(EvaluatedGroups.of_rows(label, probability, groups, weight))
    return _table(cells, confidence, overdispersion)


def group_table_of_counts(
    value: ArrayLike,
    labelled: ArrayLike,
    positives: ArrayLike,
    groups: Sequence[ArrayLike],
    *,
    confidence: float = 0.95,
    overdispersion: float = 1.0,
) -> GroupTable:
    """The same from counts (k,) behind each probability (k,). Errors: as `EvaluatedGroups.of_counts`."""
    cells = whole_groups(EvaluatedGroups.of_counts(value, labelled, positives, groups))
    return _table(cells, confidence, overdispersion)


def _table(cells: AuditCells, confidence: float, overdispersion: float) -> GroupTable:
    rate, mean_probability = cells.positives / cells.labelled, cells.expected / cells.labelled
    n = cells.effective_rows / checked_overdispersion(overdispersion)
    tail = (1 - checked_confidence(confidence)) / (2 * len(rate))
    lower, upper = clopper_pearson(n * rate, n, tail)
    return GroupTable(
        family=cells.family,
        group=cells.group,
        labelled=cells.labelled,
        positives=cells.positives,
        mean_probability=mean_probability,
        rate=rate,
        residual=cells.residual,
        lower=lower - mean_probability,
        upper=upper - mean_probability,
    )
