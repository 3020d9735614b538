"""What a served map consists of: base map, offsets and slopes of groups, level, patches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.grid import N_BINS
from stream_calib.calibration.groups import FamilyRule, GroupKey
from stream_calib.calibration.maps.base_map import BaseMap
from stream_calib.errors import FitError


@dataclass(frozen=True, slots=True, eq=False)
class FamilyShift:
    """What the groups of one family add to the base map's log-odds: offset + slope x (raw log-odds - slope centre).

    Groups without an entry, as those that no fit has seen, add 0. Raises FitError for a number that is not finite.
    """

    rule: FamilyRule
    offsets: Mapping[GroupKey, float]
    slopes: Mapping[GroupKey, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what, numbers in (("offset", self.offsets), ("slope", self.slopes)):
            for key, number in numbers.items():
                if not isfinite(number):
                    raise FitError(f"{what} {number} of {self.rule.group_name(key)} must be finite; drop the group")


@dataclass(frozen=True, slots=True, eq=False)
class PatchRound:
    """Updates of disjoint audit cells (group of one family, interval of current probability), made at once.

    `edges` (m + 1,): increasing, from 0 to 1; interval j is [edges[j], edges[j + 1]), the last one closed. `shifts`:
    for each patched group m shifts in probability. Intervals are those of the map that is served without this round
    and later ones; a grid bin belongs to one by its centre value (`ServedMap.at_centres`). Raises FitError where edges
    and shifts are not as described.
    """

    rule: FamilyRule
    edges: tuple[float, ...]
    shifts: Mapping[GroupKey, tuple[float, ...]]

    def __post_init__(self) -> None:
        intervals = len(self.edges) - 1
        if intervals < 1 or (self.edges[0], self.edges[-1]) != (0.0, 1.0) or not (np.diff(self.edges) > 0).all():
            raise FitError(f"edges of patches of {self.rule.name} must increase from 0 to 1; got {self.edges}")
        for key, shifts in self.shifts.items():
            if len(shifts) != intervals or not all(map(isfinite, shifts)):
                name = self.rule.group_name(key)
                raise FitError(f"{name} needs {intervals} finite shifts, one for each interval; got {shifts}")


def _even_weight() -> NDArray[np.float64]:
    return np.ones(N_BINS)


@dataclass(frozen=True, slots=True, eq=False)
class MapParts:
    """The map of a signature: probabilities at the lower and the upper edge x of every grid bin, 804 values in order.

    1. u(x) = base(x) + sum over families of (offset + slope (x - `slope_centre`)) + `level`, in log-odds, kept within
       logit of [p_min, 1 - p_min] (`BaseMap.limited`). Where expit(u) decreases anywhere, it is projected. In log-odds
       the base map's strict slope is added (`BaseMap.finish`): this is the map without patches.
    2. Round by round, for the signatures in a patched group: p + shift, both edges of a bin by the interval in which
       the mean of the two lies; kept within the limits, with room for the slope that follows; projected where it
       decreases anywhere; then p increases by strict slope x (1 - p) p, the first-order form of the same slope in
       log-odds. So each round, too, leaves a map that increases strictly within a signature, and is applied to the
       very map that its audit saw.

    *Projected*: replaced by the nearest non-decreasing values, the isotonic regression of the 804 values, each weighted
    by its bin's `bin_weight` (402,), > 0 (Barlow et al., "Statistical inference under order restrictions", 1972,
    section 1.2). Between edges the map is linear in the position in log-odds.

    Raises FitError where the numbers are not as described.
    """

    base: BaseMap
    families: tuple[FamilyShift, ...] = ()
    level: float = 0.0
    p_min: float = 1e-6
    slope_centre: float = 0.0
    """Raw log-odds at which slopes add nothing."""
    rounds: tuple[PatchRound, ...] = ()
    bin_weight: NDArray[np.float64] = field(default_factory=_even_weight)

    def __post_init__(self) -> None:
        if not (isfinite(self.level) and isfinite(self.slope_centre)):
            raise FitError(f"level {self.level} and slope centre {self.slope_centre} must be finite")
        if not 0 <= self.p_min < 0.5:
            raise FitError(f"p_min = {self.p_min} must lie in [0, .5)")
        weight = self.bin_weight
        if weight.shape != (N_BINS,) or not (np.isfinite(weight).all() and (weight > 0).all()):
            raise FitError(f"bin weights must be {N_BINS} finite numbers above 0; got shape {weight.shape}")
