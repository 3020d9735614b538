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

    @cached_property
    def is_plain(self) -> bool:
        """Whether a map is base map, offsets and level alone, and nothing has to be projected: adding the same number
        to values that do not decrease, and rounding, leaves them so."""
        bent = self._rounds or any(family.slopes is not None for family in self._families)
        return not bent and not _falls(self.start[None]).any()

    def plain_shifts(self, signatures: Sequence[Signature]) -> NDArray[np.float64]:
        """(s,) what a plain map adds to the base map's log-odds."""
        shift = np.zeros(len(signatures))
        for family in self._families:
            shift += family.offsets[family.rows.of(signatures)]
        return shift + self.parts.level

    def plain_at(self, grid_bin: NDArray[np.integer], shift: NDArray[np.float64]) -> NDArray[np.float64]:
        """(k, 2) of a plain map: the values of `of` at the edges of grid bins (k,), given each one's shift (k,)."""
        p_min, edges = self.parts.p_min, EDGES[grid_bin]
        limited = self.parts.base.limited(self.start[grid_bin] + shift[:, None], p_min)
        probability = np.asarray(expit(self.parts.base.finish(limited, edges, p_min)), dtype=np.float64)
        return np.clip(probability, p_min, 1 - p_min)

    def log_odds(self, signatures: Sequence[Signature]) -> NDArray[np.float64]:
        """(s, 402, 2) the definition's u: base map, offsets, level and slopes."""
        shift, slope = np.zeros((2, len(signatures)))
        for family in self._families:
            row = family.rows.of(signatures)
            shift += family.offsets[row]
            if family.slopes is not None:
                slope += family.slopes[row]
        log_odds = self.start + (shift + self.parts.level)[:, None, None]
        sloped = np.flatnonzero(slope)
        if len(sloped):
            log_odds[sloped] += slope[sloped, None, None] * (EDGES - self.parts.slope_centre)
        return log_odds

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
