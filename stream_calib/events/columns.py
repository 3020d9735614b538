"""Columns of field values out of decoded JSON objects."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stream_calib.events.contracts import RejectReason


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()
"""Stands in a column where the object has no such field (null is None)."""

Failures = dict[int, tuple[RejectReason, str]]
"""Index into the column -> why that value is refused."""


def column(objects: Sequence[dict[str, Any]], path: str) -> list[Any]:
    """The value at the path in each object, ABSENT where there is none.

    The path is dotted (``prediction.p_default``). A key at the top that is literally the whole path wins over the
    nested field: flattened records are common, and such a key can only have been meant.
    """
    try:
        return list(map(itemgetter(path), objects))
    except KeyError:
        pass  # not in every object; the plain way is twice as fast, and mostly enough
    values: list[Any] = [o.get(path, ABSENT) for o in objects]
    first, *rest = path.split(".")
    if not rest:
        return values
    nested: list[Any] = [o.get(first, ABSENT) for o in objects]
    for part in rest:
        nested = [o.get(part, ABSENT) if type(o) is dict else ABSENT for o in nested]
    if set(map(type, values)) <= {_Absent}:
        return nested
    return [deep if value is ABSENT else value for value, deep in zip(values, nested, strict=True)]


def number_column(values: Sequence[Any]) -> tuple[NDArray[np.float64], list[int]]:
    """The JSON numbers as float64 (n,), and the indexes of what is none (booleans are not), where the column holds NaN.

    Integers beyond float64 become infinite.
    """
    if set(map(type, values)) <= {int, float}:
        try:
            return np.array(values, dtype=np.float64), []
        except OverflowError:
            pass  # an integer beyond float64: taken one by one below
    numbers = np.full(len(values), np.nan)
    bad = []
    for i, value in enumerate(values):
        if type(value) is float or type(value) is int:
            try:
                numbers[i] = float(value)
            except OverflowError:
                numbers[i] = np.inf if value > 0 else -np.inf
        else:
            bad.append(i)
    return numbers, bad
