"""Theorem B: a round of patches is accepted on rows that it has never seen, or not at all.

Z = (Y - f)^2 - (Y - f')^2 is what a row gains by a round that takes the map f to f'. A lower confidence bound on its
mean comes from a bet: if the mean were at most m, then every factor 1 + bet (Z - m) would have mean at most 1, so the
product over independent rows exceeds 1 / delta with probability at most delta (Markov; Waudby-Smith, Ramdas,
"Estimating means of bounded random variables by betting", 2024, section 4, with a bet that does not move). The bound
is the m at which the product is 1 / delta. It holds at every number of rows and under every law; only its width depends
on the bet, which is therefore fixed beforehand from other data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.labelled_cells import LabelledCells
from stream_calib.errors import FitError

_MOST_OF_THE_RANGE = 0.45
"""A bet is at most this over the largest gain: every factor stays at least 1 - 2 x .45 > 0 for every mean asked."""


@dataclass(frozen=True, slots=True, eq=False)
class RoundGains:
    """Gains Z of rows by distinct value: columns (k,) float64. `rows`: all labelled rows, those of gain 0 included.

    `gain` in squared probability; `count` of rows (or their weight).
    """

    gain: NDArray[np.float64]
    count: NDArray[np.float64]
    rows: float

    @property
    def mean(self) -> float:
        """Mean gain a row."""
        return float((self.gain * self.count).sum()) / self.rows

    @property
    def mean_square(self) -> float:
        """Mean squared gain a row."""
        return float((self.gain**2 * self.count).sum()) / self.rows


def round_gains(
    cells: LabelledCells, before: NDArray[np.float64], after: NDArray[np.float64], rows: float
) -> RoundGains:
    """What rows gain by going from f `before` to f' `after`, (k,) each, at cells that hold all rows that change.

    `rows`: all labelled rows, of whatever cells. Z = (Y - f)^2 - (Y - f')^2 = (f' - f) (2 Y - f - f'). Raises FitError
    without rows.
    """
    if not rows > 0:
        raise FitError("no labelled rows to confirm a round on; give every audit bucket rows, or leave it out")
    moved = np.flatnonzero((before != after) & (cells.labelled > 0))
    f, shift = before[moved], after[moved] - before[moved]
    middle = f + f + shift
    positives = cells.positives[moved]
    gain = np.concatenate([shift * (2.0 - middle), -shift * middle])
    return RoundGains(gain, np.concatenate([positives, cells.labelled[moved] - positives]), rows)


def best_bet(mean_square: float, rows: float, largest_gain: float, delta: float, largest_unit: float = 1.0) -> float:
    """The bet that makes the bound widest on the side of acceptance, sqrt(2 ln(1 / delta) / (n E Z^2)) within limits.

    It minimises the second-order width bet E Z^2 / 2 + ln(1 / delta) / (bet n). `mean_square`: E Z^2 as other data than
    the confirmation's says; `rows` of the confirmation; `largest_gain`: no |Z| is larger.
    """
    most = _MOST_OF_THE_RANGE / largest_gain
    if mean_square <= 0:
        return most
    return min(most, float(np.sqrt(2.0 * np.log(1.0 / delta) * largest_unit / (rows * mean_square))))


def lower_bound(gains: RoundGains, bet: float, largest_gain: float, delta: float, largest_unit: float = 1.0) -> float:
    """L with P(L > E Z) <= `delta`, the bet being fixed without these rows; at least -`largest_gain`.

    `largest_gain` > 0: no |Z| can be larger, whatever the row. `largest_unit` b: units are independent, none has more
    rows (or weight) than b. With b > 1 every factor is raised to 1 / b: the product over a unit's rows is then at most
    their mean (inequality of the means), so its own mean is at most 1 too, whatever the dependence within the unit.
    Raises FitError for a bet or gains beyond the range.
    """
    gain, count = gains.gain, gains.count
    if not 0 < bet * largest_gain <= _MOST_OF_THE_RANGE * (1 + 1e-9):
        raise FitError(f"a bet of {bet} with gains up to {largest_gain}; take it from best_bet")
    if len(gain) and float(np.abs(gain).max()) > largest_gain:
        raise FitError(f"a gain of {float(np.abs(gain).max())} beyond the largest possible, {largest_gain}")
    enough = largest_unit * float(np.log(1.0 / delta))
    still = max(0.0, gains.rows - float(count.sum()))

    # ln of the product falls in m and is concave, so Newton steps from the right of the root never pass it.
    m = largest_gain
    for _ in range(100):
        excess = bet * (gain - m)
        product = float((count * np.log1p(excess)).sum()) + still * float(np.log1p(-bet * m)) - enough
        slope = -bet * (float((count / (1.0 + excess)).sum()) + still / (1.0 - bet * m))
        step = product / slope
        m -= step
        if m <= -largest_gain:
            return -largest_gain
        if step <= 1e-10 * largest_gain:
            break
    # Rounding may have left m above the root by the last step's tolerance.
    return m - 1e-9 * largest_gain
