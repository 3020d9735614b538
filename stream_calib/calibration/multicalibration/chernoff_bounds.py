"""Chernoff bounds of means between 0 and 1, for every number of rows and every law.

For the mean q of n independent values in [0, 1] whose expectations average to p, P(q >= p and n KL(q, p) >= L) and
P(q <= p and n KL(q, p) >= L) are at most exp(-L) each, KL(q, p) = q ln(q / p) + (1 - q) ln((1 - q) / (1 - p))
(Hoeffding, "Probability inequalities for sums of bounded random variables", 1963, theorem 1). Unlike the
Clopper-Pearson limits it asks neither for equal probabilities nor for whole counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import rel_entr

_HALVINGS = 50


def divergence(q: NDArray[np.float64], p: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """KL(q, p) of probabilities of one shape; infinite where p excludes what q does not."""
    return np.asarray(rel_entr(q, p) + rel_entr(1.0 - q, 1.0 - np.asarray(p)), dtype=np.float64)


def upper_limit(q: NDArray[np.float64], allowed: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) largest p >= q with KL(q, p) <= `allowed` (n,), which is L / n and may be infinite."""
    low, high = q.copy(), np.ones_like(q)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        inside = divergence(q, middle) <= allowed
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return high


def lower_limit(q: NDArray[np.float64], allowed: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) smallest p <= q with KL(q, p) <= `allowed` (n,)."""
    return 1.0 - upper_limit(1.0 - q, allowed)
