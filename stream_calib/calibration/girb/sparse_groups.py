"""Merging of score groups that hold too little."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SparseLimits:
    """What a score group needs: a share of all weight, weight, and weight of each class."""

    share: float = 0.0
    rows: float = 0.0
    positives: float = 0.0
    """Of positives, and of negatives."""


def merged_starts(
    starts: NDArray[np.intp], labelled: NDArray[np.float64], positives: NDArray[np.float64], limits: SparseLimits
) -> NDArray[np.intp]:
    """Which groups (g,) keep their start, so that no group is below a limit, or one group is left.

    The lightest group below a limit is merged with the lighter of its neighbours, and so on; among equals the group,
    and the neighbour, of lower score is taken. So the order depends on weights alone, never on the order of the rows.
    """
    n, k = labelled.tolist(), positives.tolist()
    kept = list(range(len(starts)))
    needed = max(limits.rows, limits.share * float(labelled.sum()))
    while len(n) > 1:
        sparse = [
            (n[i], i)
            for i in range(len(n))
            if n[i] < needed or k[i] < limits.positives or n[i] - k[i] < limits.positives
        ]
        if not sparse:
            break
        i = min(sparse)[1]
        below = i > 0 and (i == len(n) - 1 or n[i - 1] <= n[i + 1])
        lower = i - 1 if below else i
        n[lower : lower + 2] = [n[lower] + n[lower + 1]]
        k[lower : lower + 2] = [k[lower] + k[lower + 1]]
        del kept[lower + 1]
    return np.array(kept, dtype=np.intp)
