"""GIRB with the number of groups and the prior strength chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from stream_calib.calibration.calibrator import Calibrator
from stream_calib.calibration.fit_input import CENTRE_SCORE, Counts, counts_of_cells, counts_of_rows
from stream_calib.calibration.girb.estimator import GIRB
from stream_calib.calibration.girb.folds import Fold, folds_of_counts, folds_of_rows, thinned
from stream_calib.calibration.maps.base_map import BaseMap
from stream_calib.calibration.metrics.ece import debiased_squared_ece_of_counts
from stream_calib.calibration.metrics.log_loss import log_loss_of_counts
from stream_calib.calibration.refusals import check_enough
from stream_calib.errors import ConfigurationError, LengthMismatchError

if TYPE_CHECKING:
    from typing_extensions import Self

Criterion = Literal["log_loss", "debiased_ece"]
_CRITERIA = {"log_loss": log_loss_of_counts, "debiased_ece": debiased_squared_ece_of_counts}


@dataclass(frozen=True, slots=True, eq=False)
class SelectionCurve:
    """Held-out loss of every candidate, for plotting. Columns have shape (c,); `loss` (c, folds) float64.

    Candidates are in order of complexity, by `effective_groups`: the sum over groups of n / (n + s), the share of each
    group's rate that its own n rows decide under a prior of s. It is the trace of the smoother, its effective degrees
    of freedom (Hastie, Tibshirani and Friedman, The Elements of Statistical Learning, 2nd ed., section 7.6).
    """

    n_groups: NDArray[np.int64]
    prior_strength: NDArray[np.float64]
    effective_groups: NDArray[np.float64]
    loss: NDArray[np.float64]

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean loss (c,) over the folds."""
        return np.asarray(self.loss.mean(axis=1), dtype=np.float64)

    @property
    def standard_error(self) -> NDArray[np.float64]:
        """Standard error (c,) of `mean`, most of which is the same labels' noise for all candidates."""
        return _standard_error(self.loss)

    @property
    def best(self) -> int:
        """The candidate of the smallest mean loss; of equal ones the simplest."""
        return int(np.argmin(self.mean))

    @property
    def excess_standard_error(self) -> NDArray[np.float64]:
        """Standard error (c,) of the mean difference, fold by fold, to the best candidate."""
        return _standard_error(self.loss - self.loss[self.best])

    @property
    def chosen(self) -> int:
        """The simplest candidate whose mean loss exceeds the best one's by no more than one standard error.

        The rule is that of Breiman, Friedman, Olshen and Stone, Classification and Regression Trees, 1984, section
        3.4.3, with the standard error of the difference in place of that of the loss: the labels' noise, which is
        common to all candidates, tells nothing about which is better.
        """
        return int(np.flatnonzero(self.mean - self.mean[self.best] <= self.excess_standard_error)[0])


class GIRBCV(Calibrator):
    """GIRB with the candidate that cross-validation chooses (`SelectionCurve.chosen`), fitted to everything.

    | parameter | meaning |
    |---|---|
    | `n_groups` | numbers of groups to try |
    | `prior_strength` | prior strengths to try, each with each number of groups |
    | `criterion` | "log_loss", or "debiased_ece": the debiased squared ECE |
    | `n_folds` | folds for rows, and for cells that are not given by fold |
    | `girb` | a GIRB whose other parameters are used; None: their defaults |
    | `random_state` | seed of the folds |

    After a fit `curve_` holds the SelectionCurve, `n_groups_` and `prior_strength_` the choice, `girb_` the GIRB.
    """

    def __init__(
        self,
        *,
        n_groups: Sequence[int] = (10, 20, 50, 100, 200),
        prior_strength: Sequence[float] = (0.0, 10.0, 30.0, 100.0),
        criterion: Criterion = "log_loss",
        n_folds: int = 5,
        girb: GIRB | None = None,
        random_state: int = 0,
    ) -> None:
        self.n_groups = n_groups
        self.prior_strength = prior_strength
        self.criterion = criterion
        self.n_folds = n_folds
        self.girb = girb
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """As `Calibrator.fit`; TooFewPositivesError with fewer than two rows of a class, too."""
        counts = counts_of_rows(X, y, sample_weight)
        self._check(counts)
        return self._choose(counts, folds_of_rows(counts, self.n_folds, np.random.default_rng(self.random_state)))

    def fit_cells(self, labelled: ArrayLike, positives: ArrayLike) -> Self:
        """As `Calibrator.fit_cells`, from sums (folds, 402), a row a fold: those of unit buckets, whole or decayed.

        Whole counts (402,) are split at random, row by row: right where rows are independent.
        """
        n, k = np.asarray(labelled), np.asarray(positives)
        if n.ndim != 2 or k.ndim != 2:
            return self.fit_counts(counts_of_cells(n, k))
        if n.shape != k.shape or len(n) < 2:
            raise LengthMismatchError(f"labelled {n.shape}, positives {k.shape}: give at least 2 folds for both")
        for of_fold in zip(n, k, strict=True):
            counts_of_cells(*of_fold)
        whole = counts_of_cells(n.sum(axis=0), k.sum(axis=0))
        self._check(whole)
        return self._choose(whole, folds_of_counts(CENTRE_SCORE, n.astype(np.float64), k.astype(np.float64)))

    def fit_counts(self, counts: Counts) -> Self:
        """Fits to whole counts by score, which are split at random, row by row."""
        self._check(counts)
        return self._choose(counts, thinned(counts, self.n_folds, np.random.default_rng(self.random_state)))

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        return self._fitted().predict(X)

    def base_map(self) -> BaseMap:
        return self._fitted().base_map()

    def _choose(self, counts: Counts, folds: Iterable[Fold]) -> Self:
        candidates = list(product(sorted(set(self.n_groups)), sorted(set(self.prior_strength), reverse=True)))
        n_groups, strength = (np.array(of) for of in zip(*candidates, strict=True))
        effective = np.concatenate([self._effective_groups(counts, g) for g in sorted(set(self.n_groups))])
        loss = np.array([self._losses(fitted, held) for fitted, held in folds]).T
        # Stable, so that of equally complex candidates the one with fewer groups comes first.
        order = np.argsort(np.round(effective, 6), kind="stable")
        self.curve_ = SelectionCurve(n_groups[order], strength.astype(np.float64)[order], effective[order], loss[order])
        self.n_groups_, self.prior_strength_ = candidates[order[self.curve_.chosen]]
        self.girb_ = self._candidate(self.n_groups_).set_params(prior_strength=self.prior_strength_).fit_counts(counts)
        return self

    def _effective_groups(self, counts: Counts, n_groups: int) -> NDArray[np.float64]:
        labelled = self._candidate(n_groups).make_groups(counts).labelled
        return np.array([(labelled / (labelled + s)).sum() for s in sorted(set(self.prior_strength), reverse=True)])

    def _losses(self, fitted: Counts, held: Counts) -> list[float]:
        """Held-out loss of every candidate, by number of groups, then from the strongest prior to the weakest."""
        criterion, losses = _CRITERIA[self.criterion], []
        for n_groups in sorted(set(self.n_groups)):
            girb = self._candidate(n_groups)
            check_enough(fitted, girb.min_rows, girb.min_positives)
            groups = girb.make_groups(fitted)
            for strength in sorted(set(self.prior_strength), reverse=True):
                p = girb.set_params(prior_strength=strength).fit_groups(groups).predict(held.score)
                losses.append(criterion(p, held.labelled, held.positives))
        return losses

    def _candidate(self, n_groups: int) -> GIRB:
        girb: GIRB = GIRB() if self.girb is None else clone(self.girb)
        girb.set_params(n_groups=n_groups)
        return girb

    def _fitted(self) -> GIRB:
        check_is_fitted(self, "girb_")
        girb: GIRB = self.girb_
        return girb

    def _check(self, counts: Counts) -> None:
        if self.criterion not in _CRITERIA:
            raise ConfigurationError(f'criterion = {self.criterion!r}; it is "log_loss" or "debiased_ece"')
        if self.n_folds < 2:
            raise ConfigurationError(f"n_folds = {self.n_folds}; at least 2 are needed")
        if not len(self.n_groups) or not len(self.prior_strength):
            raise ConfigurationError("n_groups and prior_strength need at least one candidate each")
        for n_groups in self.n_groups:
            for strength in self.prior_strength:
                self._candidate(n_groups).set_params(prior_strength=strength).check_parameters()
        girb = self._candidate(min(self.n_groups))
        # Two, so that one is left where the other is held out.
        check_enough(counts, max(girb.min_rows, self.n_folds), max(girb.min_positives, 2))


def _standard_error(loss: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(loss.std(axis=1, ddof=1) / np.sqrt(loss.shape[1]), dtype=np.float64)
