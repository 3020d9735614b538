"""Multicalibration error: the largest residual of any audit cell that is not too small."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from stream_calib.calibration.metrics.audit_cells import DEFAULT_EDGES, AuditCells, audit_cells
from stream_calib.calibration.metrics.evaluated_groups import EvaluatedGroups
from stream_calib.errors import ConfigurationError


def multicalibration_error(
    label: ArrayLike,
    probability: ArrayLike,
    groups: Sequence[ArrayLike],
    weight: ArrayLike | None = None,
    *,
    edges: ArrayLike = DEFAULT_EDGES,
    gamma: float = 0.01,
) -> float:
    """Max |rate - mean probability| over cells (group, interval of probability) of mass >= `gamma`.

    Everything counts as a group too; 0 where no cell has the mass. It is alpha of Hebert-Johnson et al. 2018
    (definition 2.5), with residuals within cells and noise included, so it has a positive mean for perfect
    probabilities too. `groups`: `EvaluatedGroups.of_rows`; `edges` (m + 1,): of the intervals, from 0 to 1; `gamma`:
    share of the weight, in [0, 1]. Errors: as `EvaluatedGroups.of_rows`; ConfigurationError for `edges` or `gamma`.
    """
    evaluated = EvaluatedGroups.of_rows(label, probability, groups, weight)
    return _largest(audit_cells(evaluated, edges), evaluated.data.total, gamma)


def multicalibration_error_of_counts(
    value: ArrayLike,
    labelled: ArrayLike,
    positives: ArrayLike,
    groups: Sequence[ArrayLike],
    *,
    edges: ArrayLike = DEFAULT_EDGES,
    gamma: float = 0.01,
) -> float:
    """The same from counts (k,) behind each probability (k,). Errors: as `EvaluatedGroups.of_counts`."""
    evaluated = EvaluatedGroups.of_counts(value, labelled, positives, groups)
    return _largest(audit_cells(evaluated, edges), evaluated.data.total, gamma)


def _largest(cells: AuditCells, total: float, gamma: float) -> float:
    if not 0 <= gamma <= 1:
        raise ConfigurationError(f"gamma is {gamma}; give a share of the weight, 0 to 1")
    heavy = cells.labelled >= gamma * total
    return float(np.abs(cells.residual[heavy]).max(initial=0.0))
