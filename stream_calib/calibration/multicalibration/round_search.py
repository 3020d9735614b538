"""One round of patches on the cells: what it changes, and what fresh cells say of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.grid import MAX_LOG_ODDS
from stream_calib.calibration.groups import Family
from stream_calib.calibration.labelled_cells import LabelledCells
from stream_calib.calibration.maps.parts import MapParts, PatchRound
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.calibration.multicalibration.audit import FamilyAudit, audit
from stream_calib.calibration.multicalibration.confirmation import RoundGains, best_bet, lower_bound, round_gains
from stream_calib.calibration.multicalibration.target import AuditTarget

_ROUNDING = 1.0 + 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class RoundReport:
    """One proposed round, and what fresh rows said of it.

    `mean_gain`: mean of (Y - f)^2 - (Y - f')^2 over the `rows` of the audit. `lower_bound`: confidence bound on its
    truth; None for a round that could not be confirmed, for want of rows, and had to show one standard error of gain
    instead (`standard_error`).
    """

    patches: PatchRound
    rows: float
    mean_gain: float
    standard_error: float
    lower_bound: float | None
    accepted: bool


class ServedCells:
    """A map on cells: its probabilities at the centres of their bins."""

    def __init__(self, parts: MapParts) -> None:
        self.parts = parts
        self._served = ServedMap(parts)

    def on(self, cells: LabelledCells) -> NDArray[np.float64]:
        """(k,) probabilities."""
        return self._served.at_centres(cells.grid_bin, cells.signature, cells.signatures)


@dataclass(frozen=True, slots=True, eq=False)
class RoundSearch:
    """What all rounds have in common; the families are made over the signatures of all cells."""

    families: Sequence[Family]
    target: AuditTarget
    kappa: float
    largest_unit: float

    def audit(self, cells: LabelledCells, served: ServedCells) -> list[FamilyAudit]:
        """The families' audits of a map."""
        return audit(cells, served.on(cells), self.families, self.target)

    def confirm(
        self, patches: PatchRound, seen: LabelledCells, fresh: LabelledCells, now: ServedCells, delta: float | None
    ) -> tuple[RoundReport, ServedCells]:
        """What fresh rows say of a round that was proposed from the cells seen so far, and the map with the round.

        `delta` is the error probability of its confirmation; None: it cannot be confirmed, see `RoundReport`.
        """
        following = ServedCells(replace(now.parts, rounds=(*now.parts.rounds, patches)))
        gains = self._gains(patches, fresh, now, following)
        error = np.sqrt(self.largest_unit * max(0.0, gains.mean_square - gains.mean**2) / gains.rows)
        if delta is None:
            bound, accepted = None, gains.mean - error > 0
        else:
            largest = 2.0 * largest_move(now.parts, patches)
            expected = self._gains(patches, seen, now, following).mean_square
            bet = best_bet(expected, gains.rows, largest, delta, self.largest_unit)
            bound = lower_bound(gains, bet, largest, delta, self.largest_unit)
            accepted = bound >= self.kappa
        return RoundReport(patches, gains.rows, gains.mean, float(error), bound, bool(accepted)), following

    def _gains(self, patches: PatchRound, cells: LabelledCells, now: ServedCells, following: ServedCells) -> RoundGains:
        """Gains of the cells' rows; only signatures of patched groups are evaluated, the others keep their map."""
        rows = float(cells.labelled.sum())
        (family,) = [family for family in self.families if family.rule == patches.rule]
        patched = np.array([key in patches.shifts for key in family.keys] + [False])
        touched = cells.rows(patched[family.group_of][cells.signature])
        return round_gains(touched, now.on(touched), following.on(touched), rows)


def largest_move(parts: MapParts, patches: PatchRound) -> float:
    """What no probability of the map moves by more than when the round is added; |Z| is at most twice that.

    Projections keep the largest distance to a map that increases already. The strict slope, which is added to c in
    log-odds after every round, moves a probability p by c p (1 - p) at most, and the limits that leave room for it by
    2 c p_min.
    """
    largest = max(abs(shift) for row in patches.shifts.values() for shift in row)
    slope = parts.base.strict_slope * MAX_LOG_ODDS
    return (largest + slope * (0.25 + 2.0 * parts.p_min)) * _ROUNDING
