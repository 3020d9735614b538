"""Tails and bounds of a number of positives among independent labels whose probabilities may differ.

Such a number is Poisson-binomial. Hoeffding 1956 (Ann. Math. Statist. 27, theorem 5): a count of at least n p + 1 is no
likelier than under the binomial law of the same n and mean p, and by symmetry one of at most n p - 1. Nearer to the
mean Markov's inequality takes its place. Overdispersed counts are used at n / phi and k / phi, phi the ratio of their
variance to that of independent labels (the effective sample size of survey practice: Korn and Graubard 1998); that is
an approximation, all else is exact.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv

Column = NDArray[np.float64]

_TINY = 1e-9


def upper_tail(k: Column, n: Column, p: Column) -> Column:
    """Upper bounds (c,) on P(count >= k) of n independent labels of mean probability p; k, n may be fractional."""
    mean = n * p
    binomial = betainc(np.maximum(k, _TINY), n - k + 1, p)
    markov = np.minimum(1.0, mean / np.maximum(k, _TINY))
    return np.where(k <= 0, 1.0, np.where(k >= mean + 1, binomial, markov))


def clopper_pearson(k: Column, n: Column, tail: float) -> tuple[Column, Column]:
    """Bounds (c,) on the mean probability of n labels, k of them positive, each missed with probability <= `tail`.

    Clopper and Pearson 1934; quantiles of the beta law. Where the probabilities differ this holds by Hoeffding's
    theorem for tails <= 1/4, but where fewer than `tail` positives (negatives) are expected, with tail + tail^2 in
    place of `tail`.
    """
    lower = np.where(k > 0, betaincinv(np.maximum(k, _TINY), n - k + 1, tail), 0.0)
    upper = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, _TINY), 1 - tail), 1.0)
    return lower, upper
