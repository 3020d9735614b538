"""Equal-frequency score groups that never split rows of equal score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.grid import log_odds
from stream_calib.calibration.rounding import round_significant


@dataclass(frozen=True, slots=True, eq=False)
class ScoreGroups:
    """Groups in order of score. All columns have shape (g,) and dtype float64.

    `log_odds`: log-odds of the weighted mean score, strictly increasing; `labelled`, `positives`: sums of weight.
    """

    log_odds: NDArray[np.float64]
    labelled: NDArray[np.float64]
    positives: NDArray[np.float64]


def equal_frequency_groups(
    score: NDArray[np.float64], labelled: NDArray[np.float64], positives: NDArray[np.float64], n_groups: int
) -> ScoreGroups:
    """At most `n_groups` groups of about equal weight.

    `score`, `labelled`, `positives` have shape (k,); `score` does not decrease, every `labelled` > 0. A tie belongs
    where the middle of its weight falls, so a heavy tie is a group of its own and takes the place of the groups that it
    covers. Groups whose representative scores cannot be told apart in 12 digits of log-odds are one group.
    """
    starts = np.flatnonzero(np.concatenate([[True], score[1:] != score[:-1]]))
    tie_weight = np.add.reduceat(labelled, starts)
    middle = np.cumsum(tie_weight)
    total = middle[-1]
    middle -= tie_weight / 2
    # The last middle may round up to the total, where a light tie follows heavy ones.
    group = np.minimum(np.floor(middle * (n_groups / total)), n_groups - 1)
    first_ties = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
    group_starts = starts[first_ties]
    group_labelled = np.add.reduceat(labelled, group_starts)
    mean_score = np.add.reduceat(labelled * score, group_starts) / group_labelled
    x, member = np.unique(round_significant(log_odds(np.clip(mean_score, 0.0, 1.0))), return_inverse=True)
    return ScoreGroups(
        log_odds=x,
        labelled=np.bincount(member, group_labelled).astype(np.float64),
        positives=np.bincount(member, np.add.reduceat(positives, group_starts)).astype(np.float64),
    )
