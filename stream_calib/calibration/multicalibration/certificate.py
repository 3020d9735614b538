"""The certificate: what a map claims about every audit cell at once, from rows that nothing was fitted to.

With probability at least 1 - delta every cell of mass mu >= gamma has a residual r = E[Y - f | cell] of at most alpha^.
Three bounds hold for all cells together (Bonferroni):

* the mean of Y in the cell by Chernoff's limits (`chernoff_bounds`), 80 % of delta;
* the mean of f, which moves inside the interval of the cell only, by Hoeffding's bound for values in that interval
  ("Probability inequalities for sums of bounded random variables", 1963, theorem 2), 10 % of delta;
* the mass from above by Chernoff's limit, 10 % of delta.

Cells that seem heavy enough in earlier data (at least gamma / 2) share nine tenths of each, all others the rest: which
cells get how much is then fixed before the certificate's rows are seen, and thousands of thin cells cost little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.groups import Family
from stream_calib.calibration.multicalibration.audit import FamilyAudit
from stream_calib.calibration.multicalibration.chernoff_bounds import divergence, lower_limit, upper_limit
from stream_calib.calibration.multicalibration.target import AuditTarget
from stream_calib.errors import ConfigurationError

_SHARE_OF_LABELS, _SHARE_OF_REPORTS, _SHARE_OF_MASSES = 0.8, 0.1, 0.1
_SHARE_OF_LIKELY = 0.9
_LIKELY_MASS = 0.5
"""Of gamma, in earlier data."""

Status = Literal["certified", "violated", "uncertified"]


@dataclass(frozen=True, slots=True, eq=False)
class Certificate:
    """Residuals with their simultaneous half-widths, of all cells whose mass may be gamma or more. Columns (c,).

    `family` place in `families`, `group` place in its keys, `interval` place in the target's; `rows` of the cell;
    `residual` r^; `half_width` w, with |r - r^| <= w; `alpha` of the interval. First come cells that are
    off beyond noise, those first that are off by the largest multiple of alpha; then those of which nothing is shown,
    then those within alpha, by their rows, the heaviest first. `total_rows`: all labelled rows of the buckets.
    """

    target: AuditTarget
    delta: float
    total_rows: float
    families: Sequence[Family]
    family: NDArray[np.intp]
    group: NDArray[np.intp]
    interval: NDArray[np.intp]
    rows: NDArray[np.float64]
    residual: NDArray[np.float64]
    half_width: NDArray[np.float64]
    alpha: NDArray[np.float64]

    @property
    def alpha_claimed(self) -> float:
        """alpha^ = max(|r^| + w), at most 1: what is claimed of every cell of mass >= gamma."""
        return min(1.0, float((np.abs(self.residual) + self.half_width).max(initial=0.0)))

    @property
    def detectable_alpha(self) -> float:
        """max w: the smallest alpha that so many rows could certify, were every residual 0."""
        return min(1.0, float(self.half_width.max(initial=0.0)))

    @property
    def status(self) -> Status:
        """`certified`: every |r^| + w is within its alpha. `violated`: some |r^| - w is beyond it. Else `uncertified`:
        the rows do not suffice to tell."""
        if (np.abs(self.residual) - self.half_width > self.alpha).any():
            return "violated"
        return "certified" if (np.abs(self.residual) + self.half_width <= self.alpha).all() else "uncertified"

    def cell_name(self, place: int) -> str:
        """As `carrier=UA, [0.119, 0.269)`."""
        name = self.families[self.family[place]].names[self.group[place]]
        return f"{name}, {self.target.interval_name(int(self.interval[place]))}"


def certify(
    audits: Sequence[FamilyAudit],
    total_rows: float,
    earlier: Sequence[FamilyAudit],
    earlier_rows: float,
    target: AuditTarget,
    delta: float,
    largest_unit: float = 1.0,
) -> Certificate:
    """The certificate of audits of untouched rows.

    `earlier`: audits of the same families on other data, of `earlier_rows` rows, which say what cells are likely to be
    heavy enough. `largest_unit` b: units are independent and none has more rows (or weight) than b; bounds are those of
    n / b rows, which holds whatever the dependence within units, given how many rows each has in the cell. Counts must
    be undecayed where the claim is to hold. Raises ConfigurationError unless 0 < delta < 1.
    """
    if not 0 < delta < 1:
        raise ConfigurationError(f"delta = {delta}; the certificate's error probability must lie in (0, 1)")
    family, group, interval = _places(audits)
    rows, positives, expected = (_column(audits, name) for name in ("rows", "positives", "expected"))
    likely = _column(earlier, "rows") >= _LIKELY_MASS * target.gamma * earlier_rows
    share = _shares(likely)

    units = rows / largest_unit
    allowed_mass = np.log(1.0 / (_SHARE_OF_MASSES * delta * share)) * largest_unit / max(total_rows, 1e-300)
    mass = rows / max(total_rows, 1e-300)
    heavy = (mass >= target.gamma) | (divergence(mass, target.gamma) <= allowed_mass)

    family, group, interval, share = family[heavy], group[heavy], interval[heavy], share[heavy]
    rows, units, positives, expected = rows[heavy], units[heavy], positives[heavy], expected[heavy]
    known = np.maximum(rows, 1e-300)
    rate, report = positives / known, expected / known
    with np.errstate(divide="ignore"):
        allowed = np.log(2.0 / (_SHARE_OF_LABELS * delta * share)) / units
        width = np.diff(np.asarray(target.edges))[interval]
        of_report = width * np.sqrt(np.log(2.0 / (_SHARE_OF_REPORTS * delta * share)) / (2.0 * units))
    of_rate = np.maximum(upper_limit(rate, allowed) - rate, rate - lower_limit(rate, allowed))
    residual = np.where(rows > 0, rate - report, 0.0)
    half_width = np.where(rows > 0, np.minimum(of_rate + np.minimum(of_report, width), 2.0), 1.0)
    alpha = target.alpha[interval]

    off_by, at_most = np.abs(residual) - half_width, np.abs(residual) + half_width
    violated, within = off_by > alpha, at_most <= alpha
    order = np.lexsort((np.where(violated, -off_by / alpha, -rows), within, ~violated))
    return Certificate(
        target=target,
        delta=delta,
        total_rows=total_rows,
        families=[found.family for found in audits],
        family=family[order],
        group=group[order],
        interval=interval[order],
        rows=rows[order],
        residual=residual[order],
        half_width=half_width[order],
        alpha=alpha[order],
    )


def _places(audits: Sequence[FamilyAudit]) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Family, group and interval of every cell, in the order of `_column`."""
    parts = [np.indices(found.rows.shape).reshape(2, -1) for found in audits]
    family = np.repeat(np.arange(len(audits)), [part.shape[1] for part in parts])
    group, interval = np.concatenate(parts, axis=1) if parts else np.zeros((2, 0), dtype=np.intp)
    return family.astype(np.intp), group.astype(np.intp), interval.astype(np.intp)


def _column(audits: Sequence[FamilyAudit], name: Literal["rows", "positives", "expected"]) -> NDArray[np.float64]:
    columns = [np.asarray(getattr(found, name)).ravel() for found in audits]
    return np.concatenate([np.empty(0), *columns])


def _shares(likely: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Each cell's share of an error probability; they add up to 1 at most."""
    of_likely, of_others = int(likely.sum()), int((~likely).sum())
    return np.where(likely, _SHARE_OF_LIKELY / max(of_likely, 1), (1.0 - _SHARE_OF_LIKELY) / max(of_others, 1))
