"""Score groups: sets of neighbouring scores that are calibrated together, made of whole ties or whole grid bins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from stream_calib.calibration.fit_input import Counts
from stream_calib.calibration.girb.sparse_groups import SparseLimits, merged_starts
from stream_calib.calibration.grid import log_odds
from stream_calib.calibration.platt import fit_platt
from stream_calib.calibration.rounding import round_significant
from stream_calib.errors import ConfigurationError

Representative = Literal["mean", "median"]
Strategy = Literal["quantile", "uniform", "information"]

_PLATT_GROUPS = 1000
"""Groups of equal weight on which the Platt fit behind "information" is made."""

_ROUNDING = 1e-9
"""Share of the total by which sums may differ, with the order in which they are taken, and mean the same."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoreGroups:
    """Groups in order of score. Columns have dtype float64.

    `log_odds` (g,): log-odds of the representative score, strictly increasing; `labelled`, `positives` (g,): sums of
    weight; `boundaries` (g - 1,): raw log-odds at which the next group begins, non-decreasing.
    """

    log_odds: NDArray[np.float64]
    labelled: NDArray[np.float64]
    positives: NDArray[np.float64]
    boundaries: NDArray[np.float64]


def score_groups(
    counts: Counts,
    strategy: Strategy | Sequence[float],
    n_groups: int,
    *,
    representative: Representative = "mean",
    limits: SparseLimits | None = None,
) -> ScoreGroups:
    """At most `n_groups` groups; `strategy`:

    * "quantile": about equal weight. A tie belongs where the middle of its weight falls, so a heavy tie is a group of
      its own and takes the place of the groups that it covers;
    * "uniform": equal width in the score, [i / n, (i + 1) / n);
    * "information": about equal sums of weight x p (1 - p), which is the Fisher information that the labels carry
      about a common shift of the log-odds (McCullagh and Nelder, Generalized Linear Models, 2nd ed., section 4.4.2),
      with p from a Platt fit: fewer groups where the outcome is all but sure. Ties as under "quantile";
    * inner edges, increasing within (0, 1): (.5, .8) makes [0, .5), [.5, .8), [.8, 1].

    Groups without rows are none. Groups below the `limits` are merged (`merged_starts`); groups whose representative
    scores cannot be told apart in 12 digits of log-odds are one group. The representative score is the weighted mean,
    or the weighted (lower) median. A grid bin belongs where its centre lies.
    """
    starts, edges = _starts(counts, strategy, n_groups)
    if limits is not None:
        kept = merged_starts(starts, *_sums(counts, starts), limits)
        starts, edges = starts[kept], edges[kept]
    labelled, positives = _sums(counts, starts)
    score = _medians(counts, starts) if representative == "median" else _means(counts, starts, labelled)
    x = round_significant(log_odds(np.clip(score, 0.0, 1.0)))
    distinct = np.flatnonzero(np.append(True, x[1:] > x[:-1]))
    # Without edges of its own a group reaches half way to the next one's first score.
    first = starts[1:]
    middle = (log_odds(counts.score[first - 1]) + log_odds(counts.score[first])) / 2
    boundaries = np.where(np.isnan(edges[1:]), middle, log_odds(edges[1:]))
    return ScoreGroups(
        x[distinct],
        np.add.reduceat(labelled, distinct),
        np.add.reduceat(positives, distinct),
        round_significant(boundaries[distinct[1:] - 1]),
    )


def _starts(
    counts: Counts, strategy: Strategy | Sequence[float], n_groups: int
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """First entries (g,) of the groups, and the edges (g,) at which they begin: NaN where only the data say so."""
    if isinstance(strategy, str) and strategy != "uniform":
        weight = counts.labelled if strategy == "quantile" else _information(counts)
        starts = _equal_parts(counts, weight, n_groups)
        return starts, np.full(len(starts), np.nan)
    inner = np.arange(1, n_groups) / n_groups if isinstance(strategy, str) else checked_edges(strategy)
    # Of several edges with no row between them the lowest ends the group below.
    starts, edge = np.unique(np.searchsorted(counts.score, np.append(0.0, inner)), return_index=True)
    within = starts < len(counts.score)
    return starts[within], np.append(0.0, inner)[edge[within]]


def checked_edges(edges: Sequence[float]) -> NDArray[np.float64]:
    """Inner edges (g - 1,) float64. Raises ConfigurationError."""
    try:
        inner = np.asarray(edges, dtype=np.float64)
    except (TypeError, ValueError):
        inner = np.empty(0)
    if inner.ndim != 1 or not len(inner) or not ((inner > 0) & (inner < 1)).all() or not (np.diff(inner) > 0).all():
        raise ConfigurationError(
            f'strategy = {edges!r}; it is "quantile", "uniform", "information" or inner edges that increase in (0, 1)'
        )
    return inner


def _information(counts: Counts) -> NDArray[np.float64]:
    coarse = score_groups(counts, "quantile", _PLATT_GROUPS)
    platt = fit_platt(coarse.log_odds, coarse.labelled, coarse.positives)
    p = expit(platt.log_odds_at(log_odds(counts.score)))
    return np.asarray(counts.labelled * p * (1 - p), dtype=np.float64)


def _equal_parts(counts: Counts, weight: NDArray[np.float64], n_groups: int) -> NDArray[np.intp]:
    """First entries of at most `n_groups` groups of about equal sums of `weight` (k,), which split no tie."""
    score = counts.score
    if counts.unweighted and weight is counts.labelled:
        # The sum up to an entry is its number; nothing of the length of the rows is made.
        total = float(len(score))
        wanted = np.arange(1, n_groups) * (total / n_groups)
        entry = np.ceil(wanted).astype(np.intp) - 1
    else:
        cumulative = np.cumsum(weight)
        total = float(cumulative[-1])
        wanted = np.arange(1, n_groups) * (total / n_groups)
        entry = np.searchsorted(cumulative, wanted)
    entry = np.clip(entry, 0, len(score) - 1)
    # The tie in which a wanted sum falls goes below or above it, as the middle of its weight does; others are clear.
    first = np.searchsorted(score, score[entry])
    end = np.searchsorted(score, score[entry], side="right")
    if counts.unweighted and weight is counts.labelled:
        middle = (first + end) / 2
    else:
        middle = (np.where(first > 0, cumulative[first - 1], 0.0) + cumulative[end - 1]) / 2
    starts = np.unique(np.append(0, np.where(middle >= wanted - _ROUNDING * total, first, end)))
    return starts[starts < len(score)]


def _sums(counts: Counts, starts: NDArray[np.intp]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if counts.unweighted:
        bounds = np.append(starts, len(counts.score))
        # Counting group by group needs no number for each row.
        positives = [np.count_nonzero(counts.outcome[a:b]) for a, b in pairwise(bounds.tolist())]
        return np.diff(bounds).astype(np.float64), np.array(positives, dtype=np.float64)
    return np.add.reduceat(counts.labelled, starts), np.add.reduceat(counts.positives, starts)


def _means(counts: Counts, starts: NDArray[np.intp], labelled: NDArray[np.float64]) -> NDArray[np.float64]:
    weighted = counts.score if counts.unweighted else counts.labelled * counts.score
    return np.asarray(np.add.reduceat(weighted, starts) / labelled, dtype=np.float64)


def _medians(counts: Counts, starts: NDArray[np.intp]) -> NDArray[np.float64]:
    """The lowest score of each group up to which there is half of its weight."""
    end = np.append(starts[1:], len(counts.score))
    if counts.unweighted:
        return np.take(counts.score, starts + (end - starts - 1) // 2)
    cumulative = np.cumsum(counts.labelled)
    before = np.where(starts > 0, cumulative[starts - 1], 0.0)
    half = np.searchsorted(cumulative, (before + cumulative[end - 1]) / 2)
    return np.asarray(np.take(counts.score, np.clip(half, starts, end - 1)), dtype=np.float64)
