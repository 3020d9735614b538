"""What enters a calibrator where the data have no time: chosen by losses on folds that were held out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from stream_calib.calibration.configuration import RUNGS, Configuration, Rung
from stream_calib.calibration.entering import comes_on, mean_and_error, simplest_rung, stays_on
from stream_calib.calibration.groups import FamilyRule, make_family
from stream_calib.calibration.joint.fit import JointFit, fit_joint
from stream_calib.calibration.labelled_cells import LabelledCells, together
from stream_calib.calibration.ladder import fit_rung
from stream_calib.calibration.maps.base_map import BaseMap
from stream_calib.calibration.metrics.log_loss import log_loss_sums
from stream_calib.errors import FitError, LengthMismatchError

_TOLERANCE = 1e-3
"""Of the fits that are only compared. The penalised loss is then above its minimum by about ridge / 2 x 1e-6, that is
1e-5 in the sum over all rows, far below any difference that decides."""


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """The configuration that the folds speak for, and all that were compared.

    `losses`: summed log-loss (b,) on each held-out fold, by configuration, in the order in which they were tried;
    `rows` (b,): labelled rows of each fold. `refused`: why rungs could not be fitted to some folds, hence not chosen.
    """

    configuration: Configuration
    losses: dict[Configuration, NDArray[np.float64]]
    rows: NDArray[np.float64]
    refused: dict[Rung, str]

    def text(self) -> str:
        """One line a configuration: mean loss a row, and its difference to the chosen one's with standard error."""
        own = self.losses[self.configuration]
        lines = []
        for configuration, losses in self.losses.items():
            mean, error = mean_and_error(losses - own, self.rows)
            mark = "*" if configuration == self.configuration else " "
            loss = float(losses.sum() / self.rows.sum())
            lines.append(f"{mark} {loss:.6f} {mean:+.6f} +- {error:.6f}  {configuration.name}")
        return "\n".join(lines)


def choose_by_folds(
    folds: Sequence[LabelledCells],
    families: Sequence[FamilyRule],
    *,
    ridge: float = 20.0,
    slope_ridge: float = 20.0,
    p_min: float = 1e-6,
    n_groups: int = 100,
    prior_strength: float = 30.0,
) -> Chosen:
    """Chooses rung, slopes, firm families and families by the rules of entering.py, a fold standing for a day.

    `folds`: at least 2 (5 are usual) disjoint parts of the units, over the same signatures. Each configuration is
    fitted to all folds but one and evaluated on that one, at the centres of the bins. All `families` are on at first;
    then, in this order:

    1. the rung: the simplest within one standard error of the best, of those that can be fitted;
    2. slopes of a family come on where they help, the one that helps most first, while any does;
    3. a family is held near 0 firmly (`Penalty`) where that helps, likewise;
    4. a family goes off where it harms, the one that harms most first, while any does.

    Within a step, what did not pay once is not tried again. Harm is judged last because what a slope or a firm penalty
    cures is none of the family's doing. `p_min`, `n_groups` and `prior_strength` are those of the base maps
    (ladder.py).

    Raises LengthMismatchError where folds have other signatures, FitError for fewer than 2 folds or one without
    labelled rows, and what a GIRB fit to all folds but one raises (as OneClassError).
    """
    losses = _FoldLosses(folds, families, _RungFits(p_min, n_groups, prior_strength), ridge, slope_ridge)
    full = Configuration("girb", tuple(families))
    on_rungs, refused = [], {}
    for rung in RUNGS:
        try:
            losses.of(full.on_rung(rung))
            on_rungs.append(full.on_rung(rung))
        except FitError as error:
            # A Platt fit that decreases is no base map. GIRB fits whatever has two classes, so without it nothing does.
            if rung == RUNGS[-1]:
                raise
            refused[rung] = str(error)
    chosen = on_rungs[simplest_rung(np.stack([losses.of(each) for each in on_rungs]), losses.rows)]
    chosen = _while_better(losses, chosen, Configuration.with_slope, comes_on)
    chosen = _while_better(losses, chosen, Configuration.with_firm, comes_on)
    chosen = _while_better(losses, chosen, Configuration.without, _harmed)
    return Chosen(chosen, losses.known, losses.rows, refused)


def cells_by_fold(cells: LabelledCells, fold: NDArray[np.intp], n_folds: int) -> list[LabelledCells]:
    """The cells of each fold 0 .. `n_folds` - 1, from a column (k,) of folds. Raises LengthMismatchError."""
    if fold.shape != cells.signature.shape:
        raise LengthMismatchError(f"{len(cells.signature)} cells, folds {fold.shape}: give one fold a cell")
    return [cells.rows(fold == i) for i in range(n_folds)]


def _while_better(
    losses: _FoldLosses,
    now: Configuration,
    change: Callable[[Configuration, FamilyRule], Configuration],
    better: Callable[[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]], bool],
) -> Configuration:
    """Changes one family after the other, the one that gains most first, while that is `better` (than, rows)."""
    left = now.families
    while True:
        changed = {rule: change(now, rule) for rule in left}
        # What is no better now is not tried again.
        left = tuple(r for r, each in changed.items() if better(losses.of(each), losses.of(now), losses.rows))
        if not left:
            return now
        best = min(left, key=lambda rule: float(losses.of(changed[rule]).sum()))
        now = changed[best]
        left = tuple(rule for rule in left if rule != best)


def _harmed(without: NDArray[np.float64], now: NDArray[np.float64], rows: NDArray[np.float64]) -> bool:
    return not stays_on(now, without, rows)


@dataclass(frozen=True, slots=True)
class _RungFits:
    p_min: float
    n_groups: int
    prior_strength: float

    def fit(self, rung: Rung, cells: LabelledCells) -> BaseMap:
        return fit_rung(rung, cells, p_min=self.p_min, n_groups=self.n_groups, prior_strength=self.prior_strength)


class _FoldLosses:
    """Held-out losses of configurations, each worked out once."""

    def __init__(
        self,
        folds: Sequence[LabelledCells],
        families: Sequence[FamilyRule],
        rung_fits: _RungFits,
        ridge: float,
        slope_ridge: float,
    ) -> None:
        if len(folds) < 2:
            raise FitError(f"{len(folds)} folds; at least 2 are needed, to fit on some and evaluate on another")
        signatures = folds[0].signatures
        if any(fold.signatures is not signatures and fold.signatures != signatures for fold in folds):
            raise LengthMismatchError("folds have different signatures; count all of them over the same ones")
        self.known: dict[Configuration, NDArray[np.float64]] = {}
        self.rows = np.array([float(fold.labelled.sum()) for fold in folds])
        if not (self.rows > 0).all():
            raise FitError(
                f"folds have {self.rows.tolist()} labelled rows; none may be empty: give more units or fewer folds"
            )
        self._families = {rule: make_family(rule, signatures) for rule in families}
        # Equal cells are summed, so that every fit is spared the work.
        self._held_out = [fold.merged() for fold in folds]
        self._rest = [together([*folds[:i], *folds[i + 1 :]]).merged() for i in range(len(folds))]
        self._rung_fits = rung_fits
        self._bases: dict[Rung, list[BaseMap]] = {}
        self._start: list[JointFit | None] = [None] * len(folds)
        self._ridge, self._slope_ridge = ridge, slope_ridge

    def of(self, configuration: Configuration) -> NDArray[np.float64]:
        """Summed log-loss (b,) of each fold under the fits to the others."""
        if configuration not in self.known:
            rung = configuration.rung
            if rung not in self._bases:
                self._bases[rung] = [self._rung_fits.fit(rung, rest) for rest in self._rest]
            self.known[configuration] = np.array([self._loss(i, configuration) for i in range(len(self._rest))])
        return self.known[configuration]

    def _loss(self, i: int, configuration: Configuration) -> float:
        base, held_out = self._bases[configuration.rung][i], self._held_out[i]
        fit = fit_joint(
            self._rest[i],
            base,
            [self._families[rule] for rule in configuration.families],
            slopes=configuration.slope_places,
            firm=configuration.firm_places,
            ridge=self._ridge,
            slope_ridge=self._slope_ridge,
            tolerance=_TOLERANCE,
            start=self._start[i],
        )
        self._start[i] = fit
        p = expit(fit.log_odds(held_out, base))
        return float(log_loss_sums(p, held_out.labelled, held_out.positives).sum())
