"""What a served map consists of: base map, offsets and slopes of groups, level, patches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.base_map import BaseMap
from stream_calib.calibration.grid import N_BINS
from stream_calib.calibration.groups import FamilyRule, GroupKey


@dataclass(frozen=True, slots=True, eq=False)
class FamilyShift:
    """What the groups of one family add to the base map's log-odds: offset + slope x (raw log-odds - slope centre).

    Groups without an entry, as those that no fit has seen, add 0.
    """

    rule: FamilyRule
    offsets: Mapping[GroupKey, float]
    slopes: Mapping[GroupKey, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class PatchRound:
    """Updates of disjoint audit cells (group of one family, interval of current probability), made at once.

    `edges` (m + 1,): increasing, from 0 to 1; interval j is [edges[j], edges[j + 1]), the last one closed. `shifts`:
    for each patched group m shifts in probability. Intervals are those of the probability before the round; a grid bin
    belongs to one by its centre value.
    """

    rule: FamilyRule
    edges: tuple[float, ...]
    shifts: Mapping[GroupKey, tuple[float, ...]]


def _even_weight() -> NDArray[np.float64]:
    return np.ones(N_BINS)


@dataclass(frozen=True, slots=True, eq=False)
class MapParts:
    """The map of a signature, at the lower and the upper edge x of every grid bin, in this order:

    1. u(x) = base(x) + sum over families of (offset + slope (x - `slope_centre`)) + `level`, in log-odds, kept within
       logit of [p_min, 1 - p_min];
    2. p(x) = expit(u(x)); then round by round p += shift, clipped to [p_min, 1 - p_min]: both edges of a bin by the
       interval in which the mean of the two lies;
    3. where that decreases anywhere, the nearest non-decreasing values: isotonic regression of the 804 edge values in
       order, each weighted by its bin's `bin_weight` (402,), > 0;
    4. the base map's strict slope is added in log-odds (`BaseMap.finish`), so that it increases strictly.

    Between edges the map is linear in log-odds position.
    """

    base: BaseMap
    families: tuple[FamilyShift, ...] = ()
    level: float = 0.0
    p_min: float = 1e-6
    slope_centre: float = 0.0
    """Raw log-odds at which slopes add nothing."""
    rounds: tuple[PatchRound, ...] = ()
    bin_weight: NDArray[np.float64] = field(default_factory=_even_weight)
