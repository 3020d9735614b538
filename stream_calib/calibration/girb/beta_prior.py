"""The Beta prior on the rate of each score group."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from stream_calib.calibration.girb.score_groups import ScoreGroups
from stream_calib.calibration.platt import fit_platt

PriorCentre = Literal["platt", "base_rate"]


def prior_centres(groups: ScoreGroups, centre: PriorCentre | None) -> NDArray[np.float64]:
    """Centres (g,) of the prior: the Platt fit of these very groups at each one's score, or the base rate.

    None: the base rate too, to be used with strength 0.
    """
    if centre == "platt":
        fit = fit_platt(groups.log_odds, groups.labelled, groups.positives)
        return np.asarray(expit(fit.log_odds_at(groups.log_odds)), dtype=np.float64)
    return np.full(len(groups.labelled), groups.positives.sum() / groups.labelled.sum())


def posterior(
    groups: ScoreGroups, centres: NDArray[np.float64], strength: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rates (g,) and their weights (g,) in rows, after a prior Beta(s c, s (1 - c)) with centre c and strength s rows.

    The rate is the posterior mean (k + s c) / (n + s), of weight n + s: the prior counts as s rows (Gelman et al.,
    Bayesian Data Analysis, 3rd ed., section 2.4).
    """
    weight = groups.labelled + strength
    return np.clip((groups.positives + strength * centres) / weight, 0.0, 1.0), weight
