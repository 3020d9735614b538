"""Expected and maximum calibration error of each group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stream_calib.calibration.metrics.evaluated_groups import EvaluatedGroups
from stream_calib.calibration.metrics.probability_bins import DEFAULT_BINS, Bins, probability_bins


@dataclass(frozen=True, slots=True, eq=False)
class GroupCalibrationErrors:
    """One line for everything (family -1, group 0) and each group with labels, in this order; columns (g,).

    `family`, `group` intp: numbers as given; `labelled`: weight; `ece`, `maximum`: expected and maximum calibration
    error over the group's own bins; `ece_of_perfect`: the ECE that true probabilities would show, on average.
    """

    family: NDArray[np.intp]
    group: NDArray[np.intp]
    labelled: NDArray[np.float64]
    ece: NDArray[np.float64]
    maximum: NDArray[np.float64]
    ece_of_perfect: NDArray[np.float64]


def group_calibration_errors(
    label: ArrayLike,
    probability: ArrayLike,
    groups: Sequence[ArrayLike],
    weight: ArrayLike | None = None,
    *,
    n_bins: int = DEFAULT_BINS,
    bins: Bins = "mass",
) -> GroupCalibrationErrors:
    """`ece`, `maximum_calibration_error` and `ece_of_perfect` of the rows of each group.

    Small groups show large errors by noise: read `ece` beside `ece_of_perfect`. Shapes and errors: as
    `EvaluatedGroups.of_rows`; ConfigurationError for `n_bins` beyond 1 .. 10,000.
    """
    return _errors(EvaluatedGroups.of_rows(label, probability, groups, weight), n_bins, bins)


def group_calibration_errors_of_counts(
    value: ArrayLike,
    labelled: ArrayLike,
    positives: ArrayLike,
    groups: Sequence[ArrayLike],
    *,
    n_bins: int = DEFAULT_BINS,
    bins: Bins = "mass",
) -> GroupCalibrationErrors:
    """The same from counts (k,) behind each probability (k,). Errors: as `EvaluatedGroups.of_counts`."""
    return _errors(EvaluatedGroups.of_counts(value, labelled, positives, groups), n_bins, bins)


def _errors(evaluated: EvaluatedGroups, n_bins: int, kind: Bins) -> GroupCalibrationErrors:
    parts = []
    for family, group in evaluated.numbered():
        bins = probability_bins(evaluated.data, n_bins, kind, group)
        groups, starts = np.unique(bins.group, return_index=True)
        if not len(groups):
            continue
        labelled = np.add.reduceat(bins.labelled, starts)
        parts.append(
            (
                np.full(len(groups), family),
                groups,
                labelled,
                np.add.reduceat(bins.labelled * bins.gap, starts) / labelled,
                np.maximum.reduceat(bins.gap, starts),
                np.add.reduceat(bins.labelled * bins.perfect_gap, starts) / labelled,
            )
        )
    return GroupCalibrationErrors(*(np.concatenate(column) for column in zip(*parts, strict=True)))
