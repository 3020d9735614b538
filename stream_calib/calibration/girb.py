"""GIRB: score groups, a Beta prior in each, isotonic regression over them, linear in between."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.isotonic import isotonic_regression
from sklearn.utils.validation import check_is_fitted

from stream_calib.calibration.base_map import STRICT_SLOPE, BaseMap
from stream_calib.calibration.calibrator import Calibrator
from stream_calib.calibration.fit_input import Counts, checked_scores
from stream_calib.calibration.grid import log_odds
from stream_calib.calibration.platt import fit_platt
from stream_calib.calibration.score_groups import ScoreGroups, equal_frequency_groups
from stream_calib.errors import ConfigurationError, OneClassError, TooFewPositivesError, TooFewRowsError

PriorCentre = Literal["platt", "base_rate"]


class GIRB(Calibrator):
    """Grouping + isotonic regression of a binary outcome on a score in [0, 1].

    | parameter | meaning |
    |---|---|
    | `n_groups` | score groups of about equal weight; equal scores are never split |
    | `prior_strength` | rows that the Beta prior counts for in each group; 0: no prior |
    | `prior_centre` | the prior's centre: `"platt"`, a Platt fit of the same groups; `"base_rate"`; None: no prior |
    | `min_rows` | rows (of weight above 0; in `fit_cells` their number) below which `fit` raises TooFewRowsError |
    | `min_positives` | positives, and negatives, below which `fit` raises TooFewPositivesError |
    | `p_min` | outputs lie within [p_min, 1 - p_min] |
    | `strict` | the map increases strictly, so ranks are kept (see `base_map.STRICT_SLOPE` for its price) |

    Outside the fitted range the map is constant.

    The prior's rows count as data: with prior centre c and strength s a group of n rows and k positives has value
    (k + s c) / (n + s) and weight n + s in the isotonic regression.
    """

    def __init__(
        self,
        *,
        n_groups: int = 100,
        prior_strength: float = 30.0,
        prior_centre: PriorCentre | None = "platt",
        min_rows: int = 2,
        min_positives: int = 1,
        p_min: float = 1e-6,
        strict: bool = True,
    ) -> None:
        self.n_groups = n_groups
        self.prior_strength = prior_strength
        self.prior_centre = prior_centre
        self.min_rows = min_rows
        self.min_positives = min_positives
        self.p_min = p_min
        self.strict = strict

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Calibrated probabilities (n,) of scores (n,) or (n, 1). Raises NonFiniteInputError, ScoreRangeError."""
        return self.base_map().probability_at(log_odds(checked_scores(X)))

    def base_map(self) -> BaseMap:
        check_is_fitted(self, "base_map_")
        fitted: BaseMap = self.base_map_
        return fitted

    def fit_counts(self, counts: Counts) -> GIRB:
        self._check_parameters()
        self._check_enough(counts)
        groups = equal_frequency_groups(counts.score, counts.labelled, counts.positives, self.n_groups)
        centre, strength = self._prior(groups)
        weight = groups.labelled + strength
        rate = np.clip((groups.positives + strength * centre) / weight, 0.0, 1.0)
        value = isotonic_regression(rate, sample_weight=weight, y_min=0.0, y_max=1.0)
        self.base_map_ = BaseMap(groups.log_odds, value, self.p_min, STRICT_SLOPE if self.strict else 0.0)
        return self

    def _prior(self, groups: ScoreGroups) -> tuple[NDArray[np.float64], float]:
        if self.prior_centre == "platt" and self.prior_strength > 0:
            fit = fit_platt(groups.log_odds, groups.labelled, groups.positives)
            return expit(fit.log_odds_at(groups.log_odds)), self.prior_strength
        base_rate = np.full(len(groups.labelled), groups.positives.sum() / groups.labelled.sum())
        return base_rate, 0.0 if self.prior_centre is None else self.prior_strength

    def _check_parameters(self) -> None:
        if self.n_groups < 1:
            raise ConfigurationError(f"n_groups = {self.n_groups}; at least one score group is needed")
        if not (np.isfinite(self.prior_strength) and self.prior_strength >= 0):
            raise ConfigurationError(f"prior_strength = {self.prior_strength}; it is a number of rows, 0 or more")
        if self.prior_centre not in ("platt", "base_rate", None):
            raise ConfigurationError(f'prior_centre = {self.prior_centre!r}; it is "platt", "base_rate" or None')
        if not 0 <= self.p_min < 0.5:
            raise ConfigurationError(f"p_min = {self.p_min}; it must lie in [0, .5)")

    def _check_enough(self, counts: Counts) -> None:
        if counts.rows < self.min_rows:
            raise TooFewRowsError(f"{counts.rows:g} labelled rows; {self.min_rows} are needed: wait for more labels")
        if counts.positive_rows == 0 or counts.negative_rows == 0:
            only = 0 if counts.positive_rows == 0 else 1
            raise OneClassError(f"all {counts.rows:g} labels are {only}; a calibrator needs both classes")
        fewer, kind = min((counts.positive_rows, "positives"), (counts.negative_rows, "negatives"))
        if fewer < self.min_positives:
            raise TooFewPositivesError(f"{fewer:g} {kind}; at least {self.min_positives} of each class are needed")
