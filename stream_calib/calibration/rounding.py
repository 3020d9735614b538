"""Rounding of fitted parameters, so that a snapshot read back holds the very numbers that were fitted."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

SIGNIFICANT_DIGITS = 12

_MOST_EXACT = 22
"""Powers of ten up to this one are doubles."""
_POWERS = np.array([float(f"1e{power}") for power in range(_MOST_EXACT + 1)])
_FEW = 24
"""Numbers that are printed sooner than scaled."""
_NEAR_TIE = 2.0**-10
"""The scaled number errs by up to 2^-14, half a unit in its last place; so near to a tie it decides nothing."""


def round_significant(values: ArrayLike, digits: int = SIGNIFICANT_DIGITS) -> NDArray[np.float64]:
    """`values` of any shape, float64, rounded to 1 .. 12 significant decimal digits; -0.0 becomes 0.0.

    The result is `float(f"{value:.12g}")`, to the bit. Numbers are scaled to that many digits before the point: a
    product with or a quotient by an exact power of ten errs by less than a half unit in its last place. Away from ties
    the whole number next to it is then the right one, and scaling it back rounds correctly, because both numbers are
    exact (Clinger, "How to read floating point numbers accurately", 1990). What is near a tie, very large or very
    small, is printed and read.
    """
    exact = np.asarray(values, dtype=np.float64)
    flat = exact.ravel()
    if len(flat) <= _FEW:
        return np.array(_printed(flat, digits), dtype=np.float64).reshape(exact.shape) + 0.0
    size = np.abs(flat)
    # Of numbers that no branch below can scale, 1 is scaled; they are printed.
    scalable = (size > 10.0 ** (digits - _MOST_EXACT)) & (size < 10.0 ** (digits + _MOST_EXACT - 2))
    size = np.where(scalable, size, 1.0)
    power = digits - 1 - np.floor(np.log10(size)).astype(np.intp)
    up, down = _POWERS[np.maximum(power, 0)], _POWERS[np.maximum(-power, 0)]
    scaled = size * up / down
    whole = np.rint(scaled)
    rounded = np.copysign(whole / up * down, flat)
    # The logarithm may err next to a power of ten; then there is a digit too many or too few.
    in_range = (scaled >= 10.0 ** (digits - 1) + 1) & (scaled <= 10.0**digits - 1)
    sure = scalable & in_range & (np.abs(np.abs(scaled - whole) - 0.5) > _NEAR_TIE)
    sure |= flat == 0
    rounded[flat == 0] = 0.0
    printed = np.flatnonzero(~sure)
    rounded[printed] = _printed(flat[printed], digits)
    return np.asarray(rounded.reshape(exact.shape) + 0.0)


def _printed(values: NDArray[np.float64], digits: int) -> list[float]:
    return [float(f"{value:.{digits}g}") for value in values.tolist()]
