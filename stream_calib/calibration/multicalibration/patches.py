"""Proposals: the round of patches that an audit suggests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.maps.parts import PatchRound
from stream_calib.calibration.multicalibration.audit import FamilyAudit
from stream_calib.calibration.multicalibration.chernoff_bounds import divergence
from stream_calib.calibration.multicalibration.target import AuditTarget
from stream_calib.calibration.rounding import round_significant


def shrunk_shift(residual: NDArray[np.float64], noise_variance: NDArray[np.float64]) -> NDArray[np.float64]:
    """r max(0, 1 - v / r^2) of residuals r whose noise has variance v, of one shape.

    The posterior mean of a residual with prior N(0, t^2), t^2 estimated from that residual alone: t^2 = max(0, r^2 - v)
    maximises its marginal likelihood, and the mean is r t^2 / (t^2 + v) (Efron, Morris, "Stein's estimation rule and
    its competitors", 1973, section 2; the rule itself is the positive part of James, Stein, 1961). Each cell has a
    prior of its own, because few cells of a family are off, and those by very different amounts.
    """
    squared = residual**2
    kept = np.maximum(0.0, 1.0 - noise_variance / np.where(squared > 0, squared, 1.0))
    return np.where(squared > 0, residual * kept, 0.0)


def propose_round(
    audits: Sequence[FamilyAudit], total_rows: float, target: AuditTarget, min_group_rows: float, largest_unit: float
) -> PatchRound | None:
    """The family's cells whose patches promise the largest fall of the mean squared error; None where none is due.

    A cell is patched where its mass is at least gamma of `total_rows`, its group has `min_group_rows`, its residual is
    beyond the interval's alpha, and beyond what the largest of as many residuals would show by noise alone: n KL(rate
    of positives, mean f) > ln m, m the number of cells that could have been patched in all families. Near the normal
    law that is sqrt(2 ln m) standard deviations (Donoho, Johnstone, "Ideal spatial adaptation by wavelet shrinkage",
    1994, section 2.2); Chernoff's exponent in place of the square keeps it so for rare events, whose noise is skewed.
    Without it a calibrated map would be patched wherever noise exceeds alpha. Shifts are shrunk by their own noise.

    `largest_unit`: most rows (or weight) of one unit; noise is that of whole units (1 where every row is one).
    """
    looks = [_can_be_patched(found, total_rows, target, min_group_rows) for found in audits]
    threshold = float(np.log(max(2, sum(int(look.sum()) for look in looks))))
    best, best_fall = None, 0.0
    for found, look in zip(audits, looks, strict=True):
        residual, rows = found.residual, np.where(look, found.rows, 1.0)
        noise = largest_unit * found.variance / rows**2
        rate, report = (
            np.where(look, np.clip(sums / rows, 0.0, 1.0), 0.0) for sums in (found.positives, found.expected)
        )
        due = look & (np.abs(residual) > target.alpha) & (rows * divergence(rate, report) > threshold * largest_unit)
        shift = round_significant(np.where(due, shrunk_shift(residual, noise), 0.0))
        # Of the lemma: shifting by s lowers the potential by mu (r^2 - (r - s)^2); s is the best guess of r.
        fall = float((found.rows * shift**2).sum())
        if fall > best_fall:
            patched = np.flatnonzero(shift.any(axis=1)).tolist()
            shifts = {found.family.keys[group]: tuple(shift[group].tolist()) for group in patched}
            best, best_fall = PatchRound(found.family.rule, target.edges, shifts), fall
    return best


def _can_be_patched(
    found: FamilyAudit, total_rows: float, target: AuditTarget, min_group_rows: float
) -> NDArray[np.bool_]:
    enough = found.rows.sum(axis=1, keepdims=True) >= min_group_rows
    return np.asarray((found.rows > 0) & (found.rows >= target.gamma * total_rows) & enough, dtype=np.bool_)
