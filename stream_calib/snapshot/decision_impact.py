"""What a change of the map does to those who decide by `probability >= threshold`. Pure.

Within a grid bin the served map is linear in the raw log-odds, and does not decrease; scores are taken as evenly spread
over the bin. So the share of a bin that is at the threshold or above it follows from the values at its edges, for what
is served and for the candidate, and the share that crosses is their difference. Without it a shift of less than a bin
(.05 in log-odds), as most are from day to day, would cross with all of a bin or with none of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.groups import CellGroups
from stream_calib.snapshot.figures import rounded_figure
from stream_calib.snapshot.report_documents import MOST_DECISION_GROUPS, DecisionImpact, GroupCrossings

MIN_GROUP_EVENTS = 10
"""Groups of fewer are not named."""


@dataclass(frozen=True, slots=True, eq=False)
class Crossings:
    """Numbers of events of k cells, (k,) float64."""

    at_or_above: NDArray[np.float64]
    """At the threshold or above it by what is served."""
    up: NDArray[np.float64]
    """From below the threshold to it or above."""
    down: NDArray[np.float64]


def crossings(
    events: NDArray[np.int64], served: NDArray[np.float64], candidate: NDArray[np.float64], threshold: float
) -> Crossings:
    """Of cells with `events` (k,), and the probabilities (k, 2) at the lower and the upper edges of their bins."""
    before, after = _share_at_or_above(served, threshold), _share_at_or_above(candidate, threshold)
    moved = events * (after - before)
    return Crossings(events * before, np.maximum(moved, 0.0), np.maximum(-moved, 0.0))


def _share_at_or_above(edges: NDArray[np.float64], threshold: float) -> NDArray[np.float64]:
    low, high = edges[:, 0], edges[:, 1]
    width = high - low
    inside = (high - threshold) / np.where(width > 0, width, 1.0)
    return np.where(threshold <= low, 1.0, np.where((threshold < high), inside, 0.0))


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    name: str
    events: int
    up: float
    down: float
    lower: float


def decision_impact(
    name: str,
    threshold: float,
    events: NDArray[np.int64],
    crossed: Crossings,
    families: Sequence[CellGroups],
    *,
    lower: Sequence[NDArray[np.float64]] | None = None,
    limit: float | None = None,
) -> DecisionImpact:
    """Of one decision, of cells with `events` (k,).

    `lower`: for each family (G,) simultaneous lower bounds on the shares that cross, nan where there is none; `limit`:
    groups whose bound is above it come first, and are counted.
    """
    groups: list[_Group] = []
    for number, family in enumerate(families):
        inside, size = family.group_of >= 0, len(family.names)
        group = family.group_of[inside]
        n, up, down = (np.bincount(group, column[inside], size) for column in (events, crossed.up, crossed.down))
        bound = np.full(size, np.nan) if lower is None else lower[number]
        for i in np.flatnonzero((up + down > 0) & (n >= MIN_GROUP_EVENTS)).tolist():
            figures = float(up[i] / n[i]), float(down[i] / n[i]), float(bound[i])
            groups.append(_Group(family.names[i], int(n[i]), *figures))

    def is_beyond(group: _Group) -> bool:
        return limit is not None and group.lower > limit

    ordered = sorted(groups, key=lambda g: (not is_beyond(g), -rounded_figure(g.events * (g.up + g.down)), g.name))
    total = float(events.sum())
    return DecisionImpact(
        name=name,
        threshold=threshold,
        events=int(total),
        at_or_above=rounded_figure(float(crossed.at_or_above.sum()) / total) if total else 0.0,
        up=rounded_figure(float(crossed.up.sum()) / total) if total else 0.0,
        down=rounded_figure(float(crossed.down.sum()) / total) if total else 0.0,
        groups=tuple(_document(group) for group in ordered[:MOST_DECISION_GROUPS]),
        beyond_limit=sum(is_beyond(group) for group in groups),
        groups_left_out=max(len(groups) - MOST_DECISION_GROUPS, 0),
    )


def _document(group: _Group) -> GroupCrossings:
    return GroupCrossings(
        name=group.name,
        events=group.events,
        up=rounded_figure(group.up),
        down=rounded_figure(group.down),
        lower=None if np.isnan(group.lower) else rounded_figure(group.lower),
    )
