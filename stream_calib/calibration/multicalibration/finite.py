"""The finite form of multicalibration: patches from cells, each round confirmed on fresh ones, then a certificate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stream_calib.calibration.groups import Family, make_family
from stream_calib.calibration.labelled_cells import LabelledCells, together
from stream_calib.calibration.maps.parts import MapParts
from stream_calib.calibration.multicalibration.audit import EVERYTHING, FamilyAudit
from stream_calib.calibration.multicalibration.certificate import Certificate, certify
from stream_calib.calibration.multicalibration.patches import propose_round
from stream_calib.calibration.multicalibration.round_search import RoundReport, RoundSearch, ServedCells
from stream_calib.calibration.multicalibration.target import AuditTarget
from stream_calib.errors import ConfigurationError, FitError, LengthMismatchError, TooFewRowsError

MAX_ROUNDS = 2
"""Rounds of patches, so audit buckets; each round shares the error probability with the others."""
MIN_GROUP_UNITS = 30
"""Units of a group, in every role, below which it gets no patches."""
MIN_ROWS = 10
"""Labelled rows to propose patches from."""

_QUANTILE = 2.33
_POWER = 1.8
"""See `rows_to_confirm`."""


@dataclass(frozen=True, slots=True, eq=False)
class MulticalibrationResult:
    """`parts`: the map with the accepted rounds. `rounds`: all that were proposed. `confirmable`: whether every audit
    bucket had `rows_needed` rows; where not, the patches are `uncertified`."""

    parts: MapParts
    rounds: tuple[RoundReport, ...]
    confirmable: bool
    rows_needed: float
    certificate: Certificate


def rows_to_confirm(everything: FamilyAudit, target: AuditTarget) -> float:
    """Rows of an audit bucket at which a residual of alpha in a cell of mass gamma can be confirmed.

    1.8 z^2 / gamma x the mean of f (1 - f) / alpha^2, z = 2.33, from the audit of the family of everything; for a
    constant alpha that is 1.8 z^2 v / (gamma alpha^2) with v the mean of f (1 - f).
    """
    spread = float((everything.variance / target.alpha**2).sum()) / float(everything.rows.sum())
    return _POWER * _QUANTILE**2 * spread / target.gamma


def multicalibrate_cells(
    fit: LabelledCells,
    audits: Sequence[LabelledCells],
    certificate: LabelledCells,
    families: Sequence[Family],
    parts: MapParts,
    *,
    target: AuditTarget | None = None,
    delta: float = 0.05,
    kappa: float = 1e-6,
    largest_unit: float = 1.0,
) -> MulticalibrationResult:
    """Patches a map that has none yet, where fresh rows confirm that this helps, and certifies the result.

    All cells have the same signatures, over which the families (beside that of everything, which is always audited) are
    made. `fit` (at least 10 rows) may be decayed by age; `audits`, one or two, and `certificate` hold plain counts of
    other units, each seen once: round t is proposed from the fit and the audits before t, and accepted iff the lower
    bound on its fall of the mean squared error, which exceeds the truth with probability at most `delta` / R, is
    `kappa` or more (theorem B of docs/theory.md). So P(some accepted true fall < kappa) <= delta.

    Where an audit has fewer rows than `rows_to_confirm`, that test would refuse nearly everything. Then one round is
    proposed from the fit and accepted where the audits together show a gain of more than one standard error, the rule
    for all that is added beyond the configuration (entering.py); the result says that it is not `confirmable`.

    `largest_unit`: most labelled rows (or weight) of one unit in any audit or in the certificate. All probabilities are
    those of the map at the centres of the grid's bins.

    Raises TooFewRowsError, LengthMismatchError (other signatures), NonFiniteInputError, ConfigurationError
    (parameters, number of audits), FitError (impossible counts, or the map has rounds already).
    """
    target = target or AuditTarget()
    _check(fit, audits, certificate, parts, delta, kappa, largest_unit)
    rows_of_role = [float(cells.labelled.sum()) for cells in (*audits, certificate)]
    least_role = min(rows_of_role)
    search = RoundSearch(
        families=[make_family(EVERYTHING, fit.signatures), *(f for f in families if f.rule != EVERYTHING)],
        target=target,
        kappa=kappa,
        largest_unit=largest_unit,
    )
    now, seen = ServedCells(parts), fit
    found = search.audit(seen, now)
    rows_needed = rows_to_confirm(found[0], target) * largest_unit
    confirmable = min(rows_of_role[:-1]) >= rows_needed
    reports: list[RoundReport] = []
    for fresh in audits if confirmable else [together(audits)]:
        # A group's rows in the smallest role are foreseen, not looked up: proposals must not know the fresh rows.
        seen_rows = float(seen.labelled.sum())
        least = MIN_GROUP_UNITS * largest_unit * max(1.0, seen_rows / least_role) if least_role > 0 else np.inf
        patches = propose_round(found, seen_rows, target, least, largest_unit)
        if patches is None:
            break
        report, following = search.confirm(patches, seen, fresh, now, delta / len(audits) if confirmable else None)
        reports.append(report)
        now = following if report.accepted else now
        seen = together([seen, fresh])
        found = search.audit(seen, now)
    certified = certify(
        search.audit(certificate, now),
        rows_of_role[-1],
        found,
        float(seen.labelled.sum()),
        target,
        delta,
        largest_unit,
    )
    return MulticalibrationResult(now.parts, tuple(reports), confirmable, rows_needed, certified)


def _check(
    fit: LabelledCells,
    audits: Sequence[LabelledCells],
    certificate: LabelledCells,
    parts: MapParts,
    delta: float,
    kappa: float,
    largest_unit: float,
) -> None:
    if not 1 <= len(audits) <= MAX_ROUNDS:
        raise ConfigurationError(f"{len(audits)} audit buckets; give one or two, each of them confirms one round")
    if not (0 < delta < 1 and kappa > 0 and largest_unit > 0 and np.isfinite([kappa, largest_unit]).all()):
        raise ConfigurationError(
            f"delta = {delta} must lie in (0, 1), kappa = {kappa} and largest_unit = {largest_unit} above 0"
        )
    if parts.rounds:
        raise FitError(f"the map has {len(parts.rounds)} rounds of patches already; start from its parts without them")
    for what, cells in (("an audit", audits[0]), ("an audit", audits[-1]), ("the certificate", certificate)):
        if cells.signatures is not fit.signatures and list(cells.signatures) != list(fit.signatures):
            raise LengthMismatchError(f"{what} has other signatures than the fit; take the roles' cells from one table")
    for where, cells in (("the fit", fit), ("the audits", together(audits)), ("the certificate", certificate)):
        cells.check_counts(where)
    rows = float(fit.labelled.sum())
    if rows < MIN_ROWS:
        raise TooFewRowsError(f"{rows:g} labelled rows to propose patches from; {MIN_ROWS} are the least")
