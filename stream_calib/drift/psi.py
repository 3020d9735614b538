"""Population stability index of the raw score against the histogram of the fit, with its noise and a tail test.

PSI = sum over bins of (p - q) ln(p / q), with current shares p of n rows and reference shares q of m rows, 1/2 added
to the count of each bin (Jeffreys), so it is finite for every histogram. Under no change it is not 0 but about

    floor = (B - 1) (1/n + 1/m) D

(twice the symmetrised Kullback-Leibler divergence is a chi-square of B - 1 degrees of freedom; Yurdakul 2018), with the
design effect D >= 1 for what whole windows vary more than single rows would. What is above the floor is the *excess*.

The alarm needs the excess over psi0 to be beyond both of

* z_a standard deviations by the delta method: with g = ln(p/q) + 1 - q/p and h = ln(q/p) + 1 - p/q, the gradients,
  var = D (Var_p(g)/n + Var_q(h)/m) + 2 (B - 1) ((1/n + 1/m) D)^2;
* the upper a-quantile of c chi'^2(B - 1, psi0 / c), c = D (1/n + 1/m), the law of PSI when the truth is psi0 and the
  bins are well filled: the normal tail is too light where noise is most of the PSI. Quantile by Patnaik's (1949)
  two-moment chi-square and Wilson and Hilferty's (1931) cube root.

Fewer than two bins: `UNDEFINED`. No rows, or a design effect that is not known yet: `INSUFFICIENT`. Never an alarm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from stream_calib.calibration.grid import N_BINS

KNOWN: Final = 0
UNDEFINED: Final = 1
INSUFFICIENT: Final = 2

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ReferenceGroup:
    """One watched group: everything (`attribute` None), or one value of an attribute."""

    attribute: str | None
    value: str | None
    last_bins: tuple[int, ...]
    """Last grid bin of each bin; the last one is 401, so that the outer bins are open."""
    rows: tuple[float, ...]
    """Reference rows (decayed) in each bin."""
    design_effect: float | None
    """None: not known yet."""

    @property
    def name(self) -> str:
        return "all" if self.attribute is None else f"{self.attribute}={self.value}"


class PsiReference:
    """The frozen reference of G groups, as arrays with the B bins of the group that has most; unused bins are
    masked."""

    def __init__(self, groups: Sequence[ReferenceGroup], rows_per_pane: float) -> None:
        self.groups = tuple(groups)
        self.rows_per_pane = rows_per_pane
        """Scored rows a pane in the fit window: the time unit of the false-alarm budget."""
        self.names = tuple(g.name for g in groups)
        width = max((len(g.rows) for g in groups), default=0)
        self.bin_of: NDArray[np.int64] = np.zeros((len(groups), N_BINS), dtype=np.int64)
        """(G, 402) bin of each grid bin."""
        self.rows: Floats = np.zeros((len(groups), width))
        """(G, B) reference rows."""
        self.used: NDArray[np.bool_] = np.zeros((len(groups), width), dtype=bool)
        """(G, B) which bins exist."""
        self.design_effect: Floats = np.array([np.nan if g.design_effect is None else g.design_effect for g in groups])
        """(G,) nan where it is not known."""
        for i, group in enumerate(groups):
            self.bin_of[i] = np.searchsorted(np.asarray(group.last_bins), np.arange(N_BINS))
            self.rows[i, : len(group.rows)] = group.rows
            self.used[i, : len(group.rows)] = True

    @cached_property
    def n_bins(self) -> Floats:
        """(G,) bins of each group."""
        return np.asarray(self.used.sum(axis=1), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class PsiLook:
    """One look at G groups; columns (G,), nan where `status` is not KNOWN."""

    status: NDArray[np.uint8]
    rows: NDArray[np.int64]
    psi: Floats
    floor: Floats
    excess: Floats
    alarm: NDArray[np.bool_]
    calm: NDArray[np.bool_]
    """Known, and the excess is below half the threshold: an open alarm closes here (hysteresis)."""


def shares(counts: Floats, used: NDArray[np.bool_]) -> Floats:
    """Shares of the used bins after adding 1/2 to each; shape and dtype of `counts`, rows are groups; 0 in unused
    bins."""
    filled = np.where(used, counts + 0.5, 0.0)
    return np.asarray(filled / np.maximum(filled.sum(axis=-1, keepdims=True), 0.5))


def psi_of(p: Floats, q: Floats, used: NDArray[np.bool_]) -> Floats:
    """PSI along the last axis, of shares as `shares` makes them."""
    ratio = np.log(np.where(used, p, 1.0) / np.where(used, q, 1.0))
    return np.asarray(((p - q) * ratio).sum(axis=-1))


@dataclass(frozen=True, slots=True, eq=False)
class PsiFigures:
    """What a look is made of whatever the threshold; columns (G,), of no meaning where `status` is not KNOWN."""

    status: NDArray[np.uint8]
    rows: NDArray[np.int64]
    freedom: Floats
    """Bins less one."""
    scale: Floats
    """c."""
    psi: Floats
    floor: Floats
    variance: Floats


def look(reference: PsiReference, counts: NDArray[np.int64], threshold: float, tail: float) -> PsiLook:
    """PSI of the groups' current counts (G, B), and which exceed `threshold` (psi0) beyond the `tail` probability a.

    A tail of 0 or less is no look: nothing alarms. Raises ValueError where the shape of `counts` is not the
    reference's.
    """
    return looked_at(psi_figures(reference, counts), threshold, tail)


def psi_figures(reference: PsiReference, counts: NDArray[np.int64]) -> PsiFigures:
    """Of the groups' current counts (G, B). Raises as `look`."""
    if counts.shape != reference.rows.shape:
        raise ValueError(f"PSI counts have shape {counts.shape}, the reference has {reference.rows.shape}")
    used, n_bins = reference.used, reference.n_bins
    n, m = counts.sum(axis=1), reference.rows.sum(axis=1)
    status = np.full(len(n), KNOWN, dtype=np.uint8)
    status[(n == 0) | (m <= 0) | np.isnan(reference.design_effect)] = INSUFFICIENT
    status[n_bins < 2] = UNDEFINED
    with np.errstate(divide="ignore", invalid="ignore"):
        p, q = shares(counts.astype(np.float64), used), shares(reference.rows, used)
        scale = (1 / n + 1 / m) * reference.design_effect
        variance = _delta_variance(p, q, used, n, m, reference.design_effect) + 2 * (n_bins - 1) * scale**2
        return PsiFigures(status, n, n_bins - 1, scale, psi_of(p, q, used), (n_bins - 1) * scale, variance)


def looked_at(figures: PsiFigures, threshold: float, tail: float) -> PsiLook:
    """The rest of `look`."""
    known, psi, scale = figures.status == KNOWN, figures.psi, figures.scale
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = psi - figures.floor
        alarm = np.zeros(len(psi), dtype=bool)
        if tail > 0:
            z = -float(ndtri(min(tail, 0.5)))
            beyond_normal = excess - threshold > z * np.sqrt(figures.variance)
            alarm = known & beyond_normal & (psi > scale * _chi_square_quantile(figures.freedom, threshold / scale, z))
        calm = known & (excess < threshold / 2)
    unknown = np.where(known, 0.0, np.nan)
    return PsiLook(figures.status, figures.rows, psi + unknown, figures.floor + unknown, excess + unknown, alarm, calm)


def _delta_variance(
    p: Floats, q: Floats, used: NDArray[np.bool_], n: NDArray[np.int64], m: Floats, design_effect: Floats
) -> Floats:
    p_safe, q_safe = np.where(used, p, 1.0), np.where(used, q, 1.0)
    g = np.log(p_safe / q_safe) + 1 - q_safe / p_safe
    h = np.log(q_safe / p_safe) + 1 - p_safe / q_safe
    of_p = (p * g * g).sum(axis=1) - (p * g).sum(axis=1) ** 2
    of_q = (q * h * h).sum(axis=1) - (q * h).sum(axis=1) ** 2
    return np.asarray(design_effect * (of_p / n + of_q / m))


def _chi_square_quantile(freedom: Floats, shift: Floats, z: float) -> Floats:
    """Upper quantile at the normal quantile z of the noncentral chi-square, element by element."""
    mean, half_variance = freedom + shift, freedom + 2 * shift
    equivalent = mean**2 / half_variance
    ninth = 2 / (9 * equivalent)
    return np.asarray(half_variance / mean * equivalent * (1 - ninth + z * np.sqrt(ninth)) ** 3)
