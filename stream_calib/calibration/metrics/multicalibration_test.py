"""A test of "these probabilities are multicalibrated", exact at every size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from stream_calib.calibration.metrics.audit_cells import DEFAULT_EDGES, AuditCell, audit_cells, joined, whole_groups
from stream_calib.calibration.metrics.binomial_bounds import Column, upper_tail
from stream_calib.calibration.metrics.evaluated_groups import EvaluatedGroups
from stream_calib.calibration.metrics.parameters import checked_overdispersion
from stream_calib.errors import WeightError


@dataclass(frozen=True, slots=True)
class MulticalibrationTest:
    """`p_value`: probability, at most, of a worst cell as bad as this one if all probabilities are true.

    `statistic`: the smallest one-sided tail probability of any cell; `worst`: that cell; `tails`: how many one-sided
    tails could have been as small, over which the union bound is taken.
    """

    p_value: float
    statistic: float
    worst: AuditCell
    tails: int


def multicalibration_test(
    label: ArrayLike,
    probability: ArrayLike,
    groups: Sequence[ArrayLike],
    *,
    edges: ArrayLike = DEFAULT_EDGES,
    overdispersion: float = 1.0,
) -> MulticalibrationTest:
    """Tests that every label is an independent draw with its probability, against wrong groups and audit cells.

    Looked at is every group, everything being one, over each interval of probability and over all of them, since an
    error of a whole group shows best in its sum. For each such cell both tails of its number of positives under the
    null are bounded (`binomial_bounds`: the law is Poisson-binomial). T is the smallest, and p = T x m(T), m(t) the
    number of tails that can be <= t at all: the union bound of Bonferroni without the tests that could not reject
    (Tarone 1990, Biometrics 46, p. 515). Why it is valid: P(T <= t) <= sum over the m(t) tails of P(tail <= t) <=
    t m(t), whatever the overlap of groups, and t m(t) does not fall in t. So P(p <= a) <= a for every a, number of rows
    and number of groups; no asymptotics, no simulation.

    The probabilities, groups and edges must not depend on the labels: test on rows that nothing was fitted to. Rows
    have no weights, since a weighted sum has another law. `overdispersion` phi >= 1 tests at n / phi and k / phi where
    labels share shocks; that is an approximation. Shapes and errors: as `EvaluatedGroups.of_rows`; ConfigurationError
    for `edges` or `overdispersion`.
    """
    return _test(EvaluatedGroups.of_rows(label, probability, groups, None), edges, overdispersion)


def multicalibration_test_of_counts(
    value: ArrayLike,
    labelled: ArrayLike,
    positives: ArrayLike,
    groups: Sequence[ArrayLike],
    *,
    edges: ArrayLike = DEFAULT_EDGES,
    overdispersion: float = 1.0,
) -> MulticalibrationTest:
    """The same from counts (k,) behind each probability (k,). Errors: as `EvaluatedGroups.of_counts`.

    WeightError where counts are not whole: sums that were decayed by age have another law.
    """
    evaluated = EvaluatedGroups.of_counts(value, labelled, positives, groups)
    for column in (evaluated.data.labelled, evaluated.data.positives):
        if (column != np.floor(column)).any():
            raise WeightError("counts must be whole numbers of rows; give the test cells that are not decayed by age")
    return _test(evaluated, edges, overdispersion)


def _test(evaluated: EvaluatedGroups, edges: ArrayLike, overdispersion: float) -> MulticalibrationTest:
    phi = checked_overdispersion(overdispersion)
    cells = joined(whole_groups(evaluated), audit_cells(evaluated, edges))
    n, k, p = cells.labelled / phi, cells.positives / phi, cells.expected / cells.labelled
    tails = _both_tails(k, n - k, n, p)
    smallest = float(tails.min())
    reachable = _both_tails(n, n, n, p)
    m = int(np.count_nonzero(reachable <= smallest))
    worst = cells.cell(int(tails.argmin()) % len(n))
    return MulticalibrationTest(min(1.0, smallest * m), smallest, worst, m)


def _both_tails(positives: Column, negatives: Column, n: Column, p: Column) -> Column:
    """(2 c,): too many positives, then too many negatives."""
    return np.concatenate([upper_tail(positives, n, p), upper_tail(negatives, n, 1 - p)])
