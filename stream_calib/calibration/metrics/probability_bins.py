"""Bins of predicted probability that never split equal probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.metrics.evaluated import Evaluated
from stream_calib.calibration.metrics.parameters import checked_n_bins
from stream_calib.errors import ConfigurationError

Bins = Literal["mass", "width"]
"""Bins of about equal weight, or of equal width in probability."""

DEFAULT_BINS = 15


@dataclass(frozen=True, slots=True, eq=False)
class ProbabilityBins:
    """Non-empty bins in order of group and probability. All columns have shape (b,), and float64 but for `group`.

    `group` intp; `labelled`, `positives`: weight; `effective_rows`: (sum of weights)^2 / sum of squared weights, the
    number of rows where weights are equal (Kish 1965); `mean_probability`, `rate`: weighted means; `mean_variance`:
    weighted mean of p (1 - p); `smallest`, `largest`: probabilities.
    """

    group: NDArray[np.intp]
    labelled: NDArray[np.float64]
    positives: NDArray[np.float64]
    effective_rows: NDArray[np.float64]
    mean_probability: NDArray[np.float64]
    mean_variance: NDArray[np.float64]
    smallest: NDArray[np.float64]
    largest: NDArray[np.float64]

    @property
    def rate(self) -> NDArray[np.float64]:
        return self.positives / self.labelled

    @property
    def gap(self) -> NDArray[np.float64]:
        """(b,) |rate - mean probability|."""
        return np.abs(self.rate - self.mean_probability)

    @property
    def perfect_gap(self) -> NDArray[np.float64]:
        """(b,) the mean of `gap` if labels had these probabilities, by normal approximation."""
        return np.sqrt(2 / np.pi * self.mean_variance / self.effective_rows)


def probability_bins(
    data: Evaluated, n_bins: int, bins: Bins, group: NDArray[np.intp] | None = None
) -> ProbabilityBins:
    """At most `n_bins` bins of each group (one group of all where `group` is None; negative groups are left out).

    Of equal width: the i-th covers (i / n, (i + 1) / n], the first one 0 too, as scikit-learn's `calibration_curve`
    has it. Of equal mass: a tie belongs where the middle of its weight falls. Raises ConfigurationError.
    """
    n_bins = checked_n_bins(n_bins)
    if bins not in ("mass", "width"):
        raise ConfigurationError(f"bins are {bins!r}; give 'mass' or 'width'")
    if group is None:
        order = np.argsort(data.value, kind="stable")
        of_group = np.zeros(len(order), dtype=np.intp)
    else:
        order = np.lexsort((data.value, group))
        order = order[np.searchsorted(group[order], 0) :]
        of_group = group[order]
    value, labelled = data.value[order], data.labelled[order]
    if bins == "width":
        bin_of = np.searchsorted(np.linspace(0, 1, n_bins + 1)[1:-1], value)
    else:
        bin_of = _equal_mass(value, labelled, of_group, n_bins)
    starts = np.flatnonzero(_changes(of_group) | _changes(bin_of))

    def total(column: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.add.reduceat(column, starts) if len(starts) else np.zeros(0)

    n = total(labelled)
    return ProbabilityBins(
        group=of_group[starts],
        labelled=n,
        positives=total(data.positives[order]),
        effective_rows=n * n / total(data.squared[order]),
        mean_probability=total(labelled * value) / n,
        mean_variance=total(labelled * value * (1 - value)) / n,
        smallest=value[starts],
        largest=value[np.append(starts[1:], len(value)) - 1] if len(starts) else np.zeros(0),
    )


def _equal_mass(
    value: NDArray[np.float64], labelled: NDArray[np.float64], group: NDArray[np.intp], n_bins: int
) -> NDArray[np.intp]:
    """Bin (k,) of entries that come in order of group and value."""
    if not len(value):
        return np.zeros(0, dtype=np.intp)
    new_tie = _changes(group) | _changes(value)
    ties = np.flatnonzero(new_tie)
    weight = np.add.reduceat(labelled, ties)
    new_group = _changes(group[ties])
    number = np.cumsum(new_group) - 1
    total = np.add.reduceat(weight, np.flatnonzero(new_group))
    up_to = np.cumsum(weight)
    before = (up_to - weight)[new_group]
    middle = up_to - weight / 2 - before[number]
    # A middle on a boundary goes up, however it was rounded; the last one may round up to the total, where a light tie
    # follows heavy ones.
    of_tie = np.clip(np.floor(middle * (n_bins / total[number]) + 1e-9), 0, n_bins - 1).astype(np.intp)
    return np.asarray(of_tie[np.cumsum(new_tie) - 1])


def _changes(column: NDArray[np.float64] | NDArray[np.intp]) -> NDArray[np.bool_]:
    """(k,) whether an entry is the first one or differs from the one before."""
    return np.concatenate([np.ones(min(len(column), 1), dtype=np.bool_), column[1:] != column[:-1]])
