"""The tables of signatures: the map's values at the edges of every grid bin, as `MapParts` defines them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from stream_calib.calibration.grid import MAX_LOG_ODDS
from stream_calib.calibration.groups import GroupKey, Signature
from stream_calib.calibration.maps.base_map import EDGES
from stream_calib.calibration.maps.group_rows import GroupRows
from stream_calib.calibration.maps.parts import FamilyShift, MapParts, PatchRound

_SURE_RISE = 1e-9
"""Log-odds from one edge to the next that no rounding takes away, of moves below `_MOST_MOVED`."""
_MOST_MOVED = 1e3


class SignatureTables:
    """Makes the tables of many signatures at once. The bits of one do not depend on the others.

    Tables are (s, 402, 2): at the lower and the upper edge of each bin.
    """

    def __init__(self, parts: MapParts) -> None:
        self.parts = parts
        self.start = parts.base.start(EDGES)
        """(402, 2) log-odds of the base map, before anything is added."""
        self._families = [_FamilyRows(family) for family in parts.families]
        self._rounds = [_RoundRows(patches) for patches in parts.rounds]
        self._edge_weight = np.repeat(parts.bin_weight, 2)
        self._patched_least = parts.p_min / (1 - parts.base.strict_slope * MAX_LOG_ODDS)

    def of(self, signatures: Sequence[Signature]) -> NDArray[np.float64]:
        """(s, 402, 2) tables of s signatures."""
        table = self.projected_start(self.log_odds(signatures))
        for number in range(len(self._rounds)):
            row = self.rows_of_round(number, signatures)
            touched = np.flatnonzero(row)
            if len(touched):
                table[touched] = self.increasing(self.patched(table[touched], number, row[touched]))
        return table

    def moves(self, signatures: Sequence[Signature]) -> NDArray[np.float64]:
        """(s, 2) what is added to the base map's log-odds at the slope centre, and for each unit of distance from it.

        Both nan where a signature needs its table: where it is in a patched group, or where its values may have to be
        projected. They never have to where a map that does not decrease is moved by a constant and a slope of 0 or
        more, because rounding keeps order; nor where it rises faster everywhere than the slope falls.
        """
        shift, slope = self._shift_and_slope(signatures)
        tabled = (slope < self._least_slope) | ~(np.abs(shift) + np.abs(slope) < _MOST_MOVED)
        for number in range(len(self._rounds)):
            tabled |= self.rows_of_round(number, signatures) > 0
        made = np.stack([shift, slope], axis=1)
        made[tabled] = np.nan
        return made

    def moved_at(self, grid_bin: NDArray[np.integer], moves: NDArray[np.float64]) -> NDArray[np.float64]:
        """(k, 2) the values of `of` at the edges of grid bins (k,), to the same bit, by each one's `moves` (k, 2)."""
        p_min, edges = self.parts.p_min, EDGES[grid_bin]
        log_odds = self.start[grid_bin] + moves[:, :1]
        if moves[:, 1].any():
            log_odds += moves[:, 1:] * (edges - self.parts.slope_centre)
        probability = np.asarray(expit(self.parts.base.finish(log_odds, edges, p_min)), dtype=np.float64)
        return np.clip(probability, p_min, 1 - p_min)

    @cached_property
    def _least_slope(self) -> float:
        """From which on no signature's values fall before patches."""
        if _falls(self.start[None]).any():
            return np.inf
        width = np.diff(EDGES[:, 0])
        apart = width > 0  # the outer bins have no width
        with np.errstate(invalid="ignore"):
            rise = np.diff(self.start[:, 0])[apart]
        # Where the map is infinite, as with a p_min of 0, there is no rise: nothing is greater than nan.
        return -max(0.0, float(((rise - _SURE_RISE) / width[apart]).min()))

    def log_odds(self, signatures: Sequence[Signature]) -> NDArray[np.float64]:
        """(s, 402, 2) the definition's u: base map, offsets, level and slopes."""
        shift, slope = self._shift_and_slope(signatures)
        log_odds = self.start + shift[:, None, None]
        sloped = np.flatnonzero(slope)
        if len(sloped):
            log_odds[sloped] += slope[sloped, None, None] * (EDGES - self.parts.slope_centre)
        return log_odds

    def _shift_and_slope(self, signatures: Sequence[Signature]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(s,) sums of offsets and level, and of slopes."""
        shift, slope = np.zeros((2, len(signatures)))
        for family in self._families:
            row = family.rows.of(signatures)
            shift += family.offsets[row]
            if family.slopes is not None:
                slope += family.slopes[row]
        return shift + self.parts.level, slope

    def unprojected_start(self, log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Step 1 of the definition without the projection: tables of the sums u, given as (s, 402, 2)."""
        p_min = self.parts.p_min
        probability = np.asarray(expit(self.parts.base.finish(log_odds, EDGES, p_min)), dtype=np.float64)
        return np.clip(probability, p_min, 1 - p_min)

    def projected_start(self, log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Step 1 of the definition: tables of the sums u, given as (s, 402, 2)."""
        limited = self.parts.base.limited(log_odds, self.parts.p_min)
        falling = np.flatnonzero(_falls(limited))
        if len(falling):
            limited[falling] = logit(self._project(expit(limited[falling])))
        return self.unprojected_start(limited)

    def rows_of_round(self, number: int, signatures: Sequence[Signature]) -> NDArray[np.intp]:
        """(s,) row of each signature's shifts in a round; 0 where it is in no patched group."""
        return self._rounds[number].rows.of(signatures)

    def patched(self, table: NDArray[np.float64], number: int, row: NDArray[np.intp]) -> NDArray[np.float64]:
        """The tables plus the shifts of a round, limited: step 2 before the projection. `row`: see `rows_of_round`."""
        patches = self._rounds[number]
        centre = (table[:, :, 0] + table[:, :, 1]) / 2
        interval = np.searchsorted(patches.inner_edges, centre, side="right")
        shift = patches.shifts.reshape(-1)[row[:, None] * patches.shifts.shape[1] + interval]
        limited = np.clip(table + shift[:, :, None], self._patched_least, 1 - self._patched_least)
        return np.asarray(limited, dtype=np.float64)

    def increasing(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """Patched tables after the projection and the strict slope: the rest of step 2."""
        falling = np.flatnonzero(_falls(table))
        if len(falling):
            table = table.copy()
            table[falling] = self._project(table[falling])
        return self.strict(table)

    def strict(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """Patched tables that do not decrease, after the strict slope."""
        p_min = self.parts.p_min
        sloped = table + (self.parts.base.strict_slope * EDGES) * (table * (1 - table))
        return np.clip(sloped, p_min, 1 - p_min)

    def _project(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        # Here, because it takes a tenth of a second to import, and few maps need it.
        from scipy.optimize import isotonic_regression

        values = table.reshape(len(table), -1)
        rows = [isotonic_regression(value, weights=self._edge_weight).x for value in values]
        return np.stack(rows).reshape(table.shape)


class _FamilyRows:
    """A family's numbers by row; row 0 adds nothing."""

    def __init__(self, family: FamilyShift) -> None:
        self.rows = GroupRows(family.rule, {**family.offsets, **family.slopes})
        self.offsets = self._by_row(family.offsets)
        self.slopes = self._by_row(family.slopes) if family.slopes else None

    def _by_row(self, numbers: Mapping[GroupKey, float]) -> NDArray[np.float64]:
        return np.array([0.0] + [numbers.get(key, 0.0) for key in self.rows.keys])


class _RoundRows:
    """A round's shifts by row (g + 1, m); row 0 is of those that no patch touches."""

    def __init__(self, patches: PatchRound) -> None:
        self.rows = GroupRows(patches.rule, patches.shifts)
        self.inner_edges = np.array(patches.edges[1:-1])
        untouched = [0.0] * (len(patches.edges) - 1)
        self.shifts = np.array([untouched] + [patches.shifts[key] for key in self.rows.keys])


def _falls(table: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(s,) whether the 804 values of (s, 402, 2) decrease anywhere."""
    values = table.reshape(len(table), -1)
    return np.asarray((values[:, 1:] < values[:, :-1]).any(axis=1))
