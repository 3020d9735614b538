"""Fusion weights out of joined rows, and what they are worth on rows that they were not fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.baselines.platt import Platt
from stream_calib.calibration.fusion import FusionWeights, fit_fusion, fuse
from stream_calib.calibration.metrics.log_loss import log_loss_sums
from stream_calib.errors import TooFewPositivesError, TooFewRowsError
from stream_calib.events.identity import unit_buckets
from workers.fusion_rows import JoinedRows

EQUAL, FITTED = "equal weights", "fitted weights"


class Candidate(NamedTuple):
    """A score that could be served: one member's calibrated probability, or a fused one."""

    name: str
    log_loss: float
    """As it is; the fitted weights are those of the other half."""
    calibrated_log_loss: float
    """After a Platt map that was fitted to the other half: what its own calibration can make of it."""
    behind: float
    """By how much that is more than with fitted weights, in log-loss."""
    standard_error: float
    """Of `behind`, over units."""


class FusionFit(NamedTuple):
    """What `fit` found."""

    members: tuple[str, ...]
    weights: FusionWeights
    """Fitted to all complete rows."""
    candidates: list[Candidate]
    """Members in their order, then equal weights, then fitted ones; held-out figures."""
    rows: int
    """Labelled rows on which every member was served by a snapshot of its own: all the figures are of these."""
    positives: int
    incomplete: int
    """Labelled rows that lack a member."""


def fit(joined: JoinedRows, members: Sequence[str], *, min_rows: int, min_positives: int) -> FusionFit:
    """Weights from all complete rows; figures from two halves of the units, each judged by fits to the other.

    Raises TooFewRowsError, TooFewPositivesError (of either class; a half of them in each half) and what `fit_fusion`
    raises.
    """
    complete = np.logical_not(np.isnan(joined.probability).any(axis=1))
    probability, unit = joined.probability[complete], joined.unit[complete]
    label = joined.label[complete].astype(np.float64)
    positives, rows = int(label.sum()), len(label)
    if rows < min_rows:
        raise TooFewRowsError(
            f"{rows} labelled rows have a calibrated score of each of {', '.join(members)} ({len(complete) - rows} more"
            f" lack one); refit.min_rows = {min_rows} are needed, take a longer window"
        )
    half = unit_buckets(unit) % 2
    for of_half in (0, 1):
        n, ones = int(np.count_nonzero(half == of_half)), int(label[half == of_half].sum())
        if 2 * min(ones, n - ones) < min_positives:
            raise TooFewPositivesError(
                f"{ones} of {n} rows of one half of the units are positive; refit.min_positives = {min_positives} of"
                " each outcome are needed in both halves together, take a longer window"
            )
    weights = fit_fusion(probability, label)
    candidates = _held_out(probability, label, unit, half, members)
    return FusionFit(tuple(members), weights, candidates, rows, positives, len(complete) - rows)


def _held_out(
    probability: NDArray[np.float64],
    label: NDArray[np.float64],
    unit: NDArray[np.uint64],
    half: NDArray[np.uint8],
    members: Sequence[str],
) -> list[Candidate]:
    names = [*members, EQUAL, FITTED]
    equal = fuse(probability, FusionWeights.equal(len(members)))
    scores = np.column_stack([probability, equal, equal])
    calibrated = np.empty_like(scores)
    for held_out in (0, 1):
        judged, learnt = half == held_out, half != held_out
        weights = fit_fusion(probability[learnt], label[learnt])
        fitted = fuse(probability, weights)
        scores[judged, -1] = fitted[judged]
        for place in range(len(names)):
            score = fitted if names[place] == FITTED else scores[:, place]
            calibrated[judged, place] = Platt().fit(score[learnt], label[learnt]).predict(score[judged])
    ones = np.ones(len(label))
    plain = [_mean(log_loss_sums(column, ones, label)) for column in scores.T]
    losses = [log_loss_sums(column, ones, label) for column in calibrated.T]
    return [
        Candidate(name, plain[place], _mean(losses[place]), *_difference(losses[place] - losses[-1], unit))
        for place, name in enumerate(names)
    ]


def _difference(difference: NDArray[np.float64], unit: NDArray[np.uint64]) -> tuple[float, float]:
    """Mean of differences (n,), and its standard error where the rows of a unit hang together: that of a ratio of sums
    over units (Cochran, Sampling Techniques, 1977, section 6.4)."""
    mean = _mean(difference)
    _, place = np.unique(unit, return_inverse=True)
    by_unit = np.bincount(place, difference - mean)
    return mean, float(np.sqrt((by_unit * by_unit).sum())) / len(difference)


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.sum()) / len(values)
