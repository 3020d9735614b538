"""GIRB: score groups, a Beta prior in each, isotonic regression over them, linear in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression
from sklearn.utils.validation import check_is_fitted

from stream_calib.calibration.calibrator import Calibrator
from stream_calib.calibration.fit_input import Counts
from stream_calib.calibration.girb.beta_prior import PriorCentre, posterior, prior_centres
from stream_calib.calibration.girb.knots import Shape, knots, with_end_slopes
from stream_calib.calibration.girb.score_groups import (
    Representative,
    ScoreGroups,
    Strategy,
    checked_edges,
    score_groups,
)
from stream_calib.calibration.girb.sparse_groups import SparseLimits
from stream_calib.calibration.girb.strict import strict_map, strict_probability, value_limits
from stream_calib.calibration.grid import log_odds
from stream_calib.calibration.input_checks import checked_scores
from stream_calib.calibration.maps.base_map import BaseMap
from stream_calib.calibration.platt import fit_platt
from stream_calib.calibration.refusals import check_enough, check_p_min
from stream_calib.errors import ConfigurationError

if TYPE_CHECKING:
    from typing_extensions import Self


class GIRB(Calibrator):
    """Grouping + isotonic regression of a binary outcome on a score in [0, 1].

    | parameter | meaning |
    |---|---|
    | `n_groups` | at most so many score groups; without a meaning where `strategy` gives edges |
    | `strategy` | "quantile", "uniform", "information", or inner edges as (.5, .8); see `score_groups` |
    | `representative` | the score that stands for a group: "mean" by weight, or "median" |
    | `min_group_share` | groups with a smaller share of the weight are merged with a neighbour (`merged_starts`) |
    | `min_group_rows` | the same below a weight (of unweighted rows: their number) |
    | `min_group_positives` | the same below a weight of positives, and of negatives |
    | `prior_strength` | rows that the Beta prior counts for in each group; 0: no prior |
    | `prior_centre` | the prior's centre: "platt", a Platt fit of the same groups; "base_rate"; None: no prior |
    | `shape` | "linear" between the groups' scores, or a "step" at each group's boundary |
    | `end_slopes` | None: constant beyond the outer groups' scores; (low, high): in log-odds the map goes on there |
    | | with the slope of the Platt fit, kept within these bounds |
    | `min_rows` | rows (of weight above 0; in `fit_cells` their number) below which `fit` raises TooFewRowsError |
    | `min_positives` | positives, and negatives, below which `fit` raises TooFewPositivesError |
    | `p_min` | outputs lie within [p_min, 1 - p_min] |
    | `strict` | the map increases strictly, so ranks are kept |

    After a fit `groups_` holds the ScoreGroups and `rates_` (g,) their calibrated rates, before p_min.

    The method: a group of n rows and k positives has rate (k + s c) / (n + s) under a prior of strength s and centre c;
    isotonic regression of the rates, weighted by n + s (pool adjacent violators; Barlow, Bartholomew, Bremner and
    Brunk, Statistical Inference under Order Restrictions, 1972; for calibration Zadrozny and Elkan 2002), gives the
    values; probabilities are linear in the raw log-odds between the groups.

    `strict` keeps AUC and ranks exactly for scores that differ in single precision (float32); scores that are nearer to
    each other may become tied but never change order. Plateaus are tilted by 2e-8 of the probability per unit of raw
    log-odds, and everything by 1e-6 in log-odds; outputs stay 2e-5 (relative) above p_min and 1.5e-6 below 1 - p_min
    within the grid. In all that moves a probability by at most 5e-6; see `girb.strict` for why no map can keep more
    apart. Without it scores on a plateau, and beyond the outer groups, are tied.

    Of scikit-learn's estimator checks those do not apply that give several features, features outside [0, 1] or
    outcomes that are not 0 and 1: such data are refused, not guessed at.
    """

    def __init__(
        self,
        *,
        n_groups: int = 100,
        strategy: Strategy | Sequence[float] = "quantile",
        representative: Representative = "mean",
        min_group_share: float = 0.0,
        min_group_rows: float = 0.0,
        min_group_positives: float = 0.0,
        prior_strength: float = 30.0,
        prior_centre: PriorCentre | None = "platt",
        shape: Shape = "linear",
        end_slopes: tuple[float, float] | None = None,
        min_rows: int = 2,
        min_positives: int = 1,
        p_min: float = 1e-6,
        strict: bool = True,
    ) -> None:
        self.n_groups = n_groups
        self.strategy = strategy
        self.representative = representative
        self.min_group_share = min_group_share
        self.min_group_rows = min_group_rows
        self.min_group_positives = min_group_positives
        self.prior_strength = prior_strength
        self.prior_centre = prior_centre
        self.shape = shape
        self.end_slopes = end_slopes
        self.min_rows = min_rows
        self.min_positives = min_positives
        self.p_min = p_min
        self.strict = strict

    def fit_counts(self, counts: Counts) -> Self:
        self.check_parameters()
        check_enough(counts, self.min_rows, self.min_positives)
        return self.fit_groups(self.make_groups(counts))

    def make_groups(self, counts: Counts) -> ScoreGroups:
        """The score groups of counts that were checked: all that a fit sees of them."""
        limits = SparseLimits(self.min_group_share, self.min_group_rows, self.min_group_positives)
        return score_groups(
            counts,
            self.strategy,
            self.n_groups,
            representative=self.representative,
            limits=None if limits == SparseLimits() else limits,
        )

    def fit_groups(self, groups: ScoreGroups) -> Self:
        """Fits to the groups of `make_groups`."""
        strength = 0.0 if self.prior_centre is None else self.prior_strength
        centres = prior_centres(groups, self.prior_centre if strength > 0 else None)
        rate, weight = posterior(groups, centres, strength)
        value = np.clip(isotonic_regression(rate, weights=weight).x, 0.0, 1.0)
        made = knots(groups, value, self.shape)
        if self.end_slopes is not None:
            platt = fit_platt(groups.log_odds, groups.labelled, groups.positives)
            made = with_end_slopes(made, platt.slope, self.end_slopes)
        self.groups_, self.rates_ = groups, value
        self.base_map_ = strict_map(made, self.p_min) if self.strict else BaseMap(*made, self.p_min, 0.0)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        base_map = self.base_map()
        score = checked_scores(X)
        if base_map.strict_slope > 0:
            return strict_probability(base_map, score)
        return base_map.probability_at(log_odds(score))

    def base_map(self) -> BaseMap:
        check_is_fitted(self, "base_map_")
        fitted: BaseMap = self.base_map_
        return fitted

    def check_parameters(self) -> None:
        """Raises ConfigurationError for parameters that make no sense."""
        if self.n_groups < 1:
            raise ConfigurationError(f"n_groups = {self.n_groups}; at least one score group is needed")
        if not isinstance(self.strategy, str):
            checked_edges(self.strategy)
        for name, allowed in _CHOICES.items():
            given = getattr(self, name)
            if (isinstance(given, str) or name != "strategy") and given not in allowed:
                raise ConfigurationError(f"{name} = {given!r}; it is one of {', '.join(map(repr, allowed))}")
        for name in ("min_group_share", "min_group_rows", "min_group_positives", "prior_strength"):
            given = getattr(self, name)
            if not (np.isfinite(given) and given >= 0):
                raise ConfigurationError(f"{name} = {given}; it is a finite number, 0 or more")
        if self.min_group_share > 1:
            raise ConfigurationError(f"min_group_share = {self.min_group_share}; it is a share, 0 to 1")
        if self.end_slopes is not None:
            slopes = np.asarray(self.end_slopes, dtype=np.float64)
            if slopes.shape != (2,) or not np.isfinite(slopes).all() or not 0 <= slopes[0] <= slopes[1]:
                raise ConfigurationError(
                    f"end_slopes = {self.end_slopes}; they are None or (low, high), 0 <= low <= high"
                )
        check_p_min(self.p_min)
        low, high = value_limits(self.p_min)
        if self.strict and not low < high:
            raise ConfigurationError(f"p_min = {self.p_min} leaves no room for a strict map; make it smaller")


_CHOICES: dict[str, tuple[str | None, ...]] = {
    "strategy": ("quantile", "uniform", "information"),
    "representative": ("mean", "median"),
    "prior_centre": ("platt", "base_rate", None),
    "shape": ("linear", "step"),
}
