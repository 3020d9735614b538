"""Each input partition's own clock: its largest accepted event time. A record is late or skewed against that clock
alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NO_CLOCK = np.iinfo(np.int64).min // 2
"""Minus infinity, with room to subtract a lateness."""


class Judged(NamedTuple):
    """Columns of shape (n,) for n items of one partition in order."""

    late: NDArray[np.bool_]
    skewed: NDArray[np.bool_]
    clock_before: NDArray[np.int64]
    """NO_CLOCK before the first event."""
    clock_after: NDArray[np.int64]


def judge(
    event_time_ms: NDArray[np.int64],
    append_time_ms: NDArray[np.int64],
    clock_ms: int | None,
    lateness_ms: int,
    max_clock_skew_ms: int | None,
) -> Judged:
    """Which items (n,) are late or skewed, and the clock around each.

    Skewed: the event is further than `max_clock_skew_ms` ahead of the time at which the log took its record (None:
    off).
    Late: the event is older than the clock before it minus the lateness; equal is not late. Neither moves the clock.
    """
    if max_clock_skew_ms is None:
        skewed = np.zeros(len(event_time_ms), dtype=bool)
    else:
        skewed = event_time_ms > append_time_ms + max_clock_skew_ms
    start = NO_CLOCK if clock_ms is None else clock_ms
    # A late event is below the clock, so it may stay in the running maximum.
    counted = np.where(skewed, NO_CLOCK, event_time_ms)
    clock = np.maximum.accumulate(np.concatenate([[start], counted]))
    before, after = clock[:-1], clock[1:]
    late = ~skewed & (event_time_ms < before - lateness_ms)
    return Judged(late, skewed, before, after)
