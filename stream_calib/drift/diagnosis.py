"""What kind of drift it is: of the scores alone, of the base rate, or of what a score means.

With the groups' sums of (label - p), U, and of p (1 - p), V, the shift of a group in log-odds is estimated by

    d = U / V',   V' = V (1 + y (1 - y) / (f (1 - f))) / 2,

y and f the group's mean label and mean p: U is the integral of V over the shift, here by the trapezoidal rule. Its
variance is phi / V'. Groups share one shift where Cochran's Q = sum w (d - mean d)^2, w = V' / phi, is no larger than
chance makes a chi-square of (groups - 1) degrees of freedom (Cochran, "The combination of estimates from different
experiments", 1954), or they differ by less than half of what they share: with labels enough any difference is proved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

Diagnosis: TypeAlias = Literal["covariate_shift", "prior_shift", "concept_drift", "undetermined"]

_LEAST_INFORMATION = 5.0
"""V' / phi that a group needs to count: with less, d is no estimate."""
_Z = 1.96
_SMALL_P = 0.05


@dataclass(frozen=True, slots=True)
class OutcomeSums:
    """Sums over the labelled events of g groups, all (g,)."""

    labelled: NDArray[np.int64]
    positives: NDArray[np.int64]
    expected: NDArray[np.float64]
    """Of what is served, p."""
    variance: NDArray[np.float64]
    """Of p (1 - p)."""


@dataclass(frozen=True, slots=True)
class CommonShift:
    """What groups share, in log-odds; nan where too little is known for any."""

    shift: float
    error: float
    """Standard error."""
    q: float
    p_value: float
    """Of Q; nan with fewer than two groups."""
    kind: Diagnosis


_UNKNOWN = CommonShift(math.nan, math.nan, math.nan, math.nan, "undetermined")


def most_uneven(partitions: Sequence[tuple[OutcomeSums, float]]) -> CommonShift:
    """Of several partitions of the same events, each with its phi, the one that is least likely to share one shift, its
    p-value times their number (Bonferroni)."""
    found = [common_shift(groups, phi, len(partitions)) for groups, phi in partitions]
    known = [shift for shift in found if not math.isnan(shift.p_value)]
    return min(known, key=lambda shift: shift.p_value) if known else _UNKNOWN


def common_shift(groups: OutcomeSums, phi: float, tests: int = 1) -> CommonShift:
    """Whether outcomes of the groups moved by one shift. `undetermined` where fewer than two have labels enough, or
    nothing is off on the whole and nothing differs. `tests`: by how many the p-value is multiplied."""
    n = np.maximum(groups.labelled, 1)
    outcome, served = groups.positives / n, groups.expected / n
    spread = np.maximum(served * (1.0 - served), 1e-12)
    information = groups.variance * (1.0 + outcome * (1.0 - outcome) / spread) / 2 / phi
    used = information >= _LEAST_INFORMATION
    weight = information[used]
    if not len(weight):
        return _UNKNOWN
    shift = (groups.positives - groups.expected)[used] / phi / weight
    mean = float((weight * shift).sum() / weight.sum())
    error = 1.0 / math.sqrt(float(weight.sum()))
    if len(weight) < 2:
        return CommonShift(mean, error, math.nan, math.nan, "undetermined")
    q = float((weight * (shift - mean) ** 2).sum())
    p_value = min(1.0, tests * float(chdtrc(len(weight) - 1, q)))
    differs = p_value < _SMALL_P and float(np.abs(shift - mean).max()) > abs(mean) / 2
    kind: Diagnosis = "concept_drift" if differs else "prior_shift" if abs(mean) > _Z * error else "undetermined"
    return CommonShift(mean, error, q, p_value, kind)
