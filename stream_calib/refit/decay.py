"""Decay by age in 64-bit fixed point, exactly the same whatever the number of panes taken at a time.

Counts are not multiplied down pane by pane; newer panes weigh more instead. Pane number k of a half-life of H panes has
weight 2^(k/H), in units of 2^-F, and after each H panes every sum is halved (rounded half up). So a sum is touched only
by what is added to it and once a half-life, all in integers.

F is such that 10^9 rows a pane in one cell, for ever, stay below 2^62: the weights that are counted at any time sum to
less than 2 H / ln 2 + 2. With H = 480 (20 days of hours) F = 21: a resolution of 5e-7 rows.
"""

from __future__ import annotations

import decimal
import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

MOST_ROWS_A_PANE = 1_000_000_000


class Decay:
    """Arithmetic of one half-life, in panes."""

    def __init__(self, half_life_panes: int) -> None:
        if half_life_panes < 1:
            raise ValueError(f"half-life of {half_life_panes} panes: at least 1 is needed")
        self.half_life_panes = half_life_panes
        largest_sum = MOST_ROWS_A_PANE * (2 * half_life_panes / math.log(2) + 2)
        self.fraction_bits = 62 - math.ceil(math.log2(largest_sum))
        if self.fraction_bits < 1:
            raise ValueError(f"half-life of {half_life_panes} panes leaves no fraction bits; use longer panes")
        self._weights = _weights(half_life_panes, self.fraction_bits)

    def weight(self, step: int) -> int:
        """Weight of the rows of the `step`-th pane since the first (from 0), as they are added."""
        return self._weights[step % self.half_life_panes]

    def halves_before(self, step: int) -> bool:
        """Whether all sums are halved before the `step`-th pane is added."""
        return step > 0 and step % self.half_life_panes == 0

    def rows(self, sums: NDArray[np.int64], step: int) -> NDArray[np.float64]:
        """Decayed rows of the sums as of the `step`-th pane (whose own rows count 1 each); same shape."""
        return np.asarray(sums / self.weight(step), dtype=np.float64)


def halve(sums: NDArray[np.int64]) -> None:
    """Halves in place, rounded half up; keeps the order of equal columns, so positives never exceed labelled."""
    sums += 1
    sums >>= 1


@lru_cache(maxsize=8)
def _weights(half_life_panes: int, fraction_bits: int) -> tuple[int, ...]:
    # In decimal arithmetic, because the last bit of a float power differs between C libraries.
    with decimal.localcontext() as context:
        context.prec = 50
        ratio = decimal.Decimal(2) ** (decimal.Decimal(1) / half_life_panes)
        weight, weights = decimal.Decimal(2) ** fraction_bits, []
        for _ in range(half_life_panes):
            weights.append(int(weight.to_integral_value()))
            weight *= ratio
        return tuple(weights)
