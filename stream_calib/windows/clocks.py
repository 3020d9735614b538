"""Each input partition's own clock: its largest accepted event time, or (labels, where it is so configured) the largest
time at which the log took a record. A record is late or skewed against that clock alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_calib.windows.panes import PaneSettings

NO_CLOCK = np.iinfo(np.int64).min // 2
"""Minus infinity, with room to subtract a lateness."""


def clock_around(moves_to_ms: NDArray[np.int64], clock_ms: int | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The clock (n,) before and after each of n items that move it to these times, and never back; NO_CLOCK before the
    first one. `clock_ms`: before them all."""
    start = NO_CLOCK if clock_ms is None else clock_ms
    clock = np.maximum.accumulate(np.concatenate([[start], moves_to_ms]))
    return clock[:-1], clock[1:]


def least_of_all(values: Sequence[int | None]) -> int | None:
    """The least, None where one is not known, or there is none: what is not known counts as minus infinity."""
    known = [value for value in values if value is not None]
    return min(known) if known and len(known) == len(values) else None


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
    # A late event is below the clock, so it may stay in the running maximum.
    before, after = clock_around(np.where(skewed, NO_CLOCK, event_time_ms), clock_ms)
    late = ~skewed & (event_time_ms < before - lateness_ms)
    return Judged(late, skewed, before, after)


class JudgedByBroker(NamedTuple):
    """Columns of shape (n,) for n items of one partition in order."""

    late: NDArray[np.bool_]
    clock_before: NDArray[np.int64]
    """NO_CLOCK before the first item that moves it."""
    clock_after: NDArray[np.int64]
    from_ms: NDArray[np.int64]
    """A label joins no score before that, whose pane has matured by the partition's own clock. 0: all are in reach."""


def judge_by_broker(
    event_time_ms: NDArray[np.int64],
    moves_to_ms: NDArray[np.int64],
    is_label: NDArray[np.bool_],
    clock_ms: int | None,
    settings: PaneSettings,
) -> JudgedByBroker:
    """Which of a label partition's items (n,) are late under the broker clock, and what the others can still join.

    Every item moves the clock to `moves_to_ms`: the time at which the log took it, or what a control record says.
    With c the clock before a label, panes that end by c - lateness - horizon have matured by it. A label is late when
    no score that it could join (before it, by at most the horizon) is in a later pane. None is skewed.
    """
    before, after = clock_around(moves_to_ms, clock_ms)
    matured_ms = before - settings.label_lateness_ms - settings.horizon_ms
    from_ms = np.maximum(matured_ms // settings.pane_ms * settings.pane_ms, 0)
    late = is_label & (from_ms >= event_time_ms)
    return JudgedByBroker(late, before, after, np.where(from_ms > event_time_ms - settings.horizon_ms, from_ms, 0))
