"""Which groups a raw score is wrong in, beyond doubt, and since when."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from stream_calib.backtest.policies.run_columns import CellColumns
from stream_calib.calibration.fit_input import CENTRE_SCORE
from stream_calib.calibration.grid import LOWER_LOG_ODDS, N_BINS, UPPER_LOG_ODDS
from stream_calib.calibration.groups import Family, FamilyRule, make_family
from stream_calib.calibration.metrics.binomial_bounds import clopper_pearson
from stream_calib.drift.overdispersion import overdispersion

DAY_MS = 86_400_000
CONFIDENCE = 0.95
"""That all bands of a table hold together."""
HALF_BIN: NDArray[np.float64] = (expit(UPPER_LOG_ODDS) - expit(LOWER_LOG_ODDS)) / 2
"""(402,) how far a score may be from its bin's centre."""
WEEKLY_DAYS = 120
"""In shorter histories "since when" is a week, in longer ones a month."""


class WrongGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A group whose observed rate is not what the scores say, beyond its band."""

    family: str
    group: str
    labelled: int
    observed: float
    """Rate of positives."""
    said: float
    """Mean score."""
    low: float
    high: float
    """Band of the true rate."""
    since: str | None
    """First month (`2013-04`) or week (its Monday) from which on it is off to that side; None: not to be told."""
    from_start: bool
    """That is the first one of the history."""


def wrong_groups(
    columns: CellColumns, first_pane: int, rules: Sequence[FamilyRule], pane_ms: int
) -> tuple[int, list[WrongGroup]]:
    """Groups looked at, and those that are wrong in the panes from `first_pane` on, the largest number of events that
    is beyond doubt misjudged first.

    Bands: Clopper-Pearson at n / phi, Bonferroni over all groups; phi: overdispersion of the family's days about the
    mean error of each group, as days share what happens to them.
    """
    raw = CENTRE_SCORE[columns.grid_bin]
    families = [make_family(rule, columns.values) for rule in rules]
    total = sum(len(family.keys) for family in families) + 1
    recent = np.arange(len(raw)) >= columns.of_panes(first_pane, first_pane + len(columns.scored)).start
    period, names = _periods(columns, pane_ms)
    found: list[tuple[float, WrongGroup]] = []
    for family in families:
        found += _of_family(family, columns, raw, recent, (period, names), total, pane_ms)
    found.sort(key=lambda one: (-one[0], one[1].family, one[1].group))
    return total - 1, [group for _, group in found]


def _of_family(
    family: Family,
    columns: CellColumns,
    raw: NDArray[np.float64],
    recent: NDArray[np.bool_],
    periods: tuple[NDArray[np.intp], Sequence[str]],
    total: int,
    pane_ms: int,
) -> list[tuple[float, WrongGroup]]:
    group = family.group_of[columns.signature]
    size, (period, names) = len(family.keys), periods
    inside = group >= 0
    phi = _phi(group, size, inside & recent, columns, raw, pane_ms)

    def sums(chosen: NDArray[np.bool_], place: NDArray[np.intp], length: int) -> list[NDArray[np.float64]]:
        terms = columns.labelled, columns.positives, columns.labelled * raw
        return [np.bincount(place[chosen], term[chosen], length).astype(np.float64) for term in terms]

    n, k, expected = sums(inside & recent, group, size)
    unknown = _unknown(group, size, inside & recent, columns)
    by_period = [
        part.reshape(size, len(names)) for part in sums(inside, group * len(names) + period, size * len(names))
    ]
    with np.errstate(invalid="ignore"):
        said, observed = expected / n, k / n
    low, high = clopper_pearson(k / phi, n / phi, (1 - CONFIDENCE) / (2 * total))
    beyond = np.maximum(low - said, said - high)
    certain = np.where(n > 0, np.maximum(beyond - unknown / np.maximum(n, 1e-9), 0.0), 0.0)
    found = []
    for i in np.flatnonzero(certain > 0).tolist():
        since = _since([part[i] for part in by_period], observed[i] > said[i], phi)
        wrong = WrongGroup(
            family=family.rule.name.replace(" & ", " x "),
            group=family.names[i],
            labelled=round(n[i]),
            observed=float(observed[i]),
            said=float(said[i]),
            low=float(low[i]),
            high=float(high[i]),
            since=None if since is None else names[since],
            from_start=since == 0,
        )
        found.append((float(certain[i] * n[i]), wrong))
    return found


def _unknown(
    group: NDArray[np.intp], size: int, chosen: NDArray[np.bool_], columns: CellColumns
) -> NDArray[np.float64]:
    """How far the sum of a group's scores may be from that of the centres of their bins, which is what cells know: half
    a bin where all scores are the same; errors of different bins are independent, and add up as roots."""
    place = group[chosen] * N_BINS + columns.grid_bin[chosen]
    n = np.bincount(place, columns.labelled[chosen], size * N_BINS).reshape(size, N_BINS)
    found: NDArray[np.float64] = np.sqrt(((n * HALF_BIN) ** 2).sum(axis=1))
    return found


def _since(sums: Sequence[NDArray[np.float64]], above: bool, phi: float) -> int | None:
    """The first period whose rate is beyond its band on that side, after the last one that is on the other side."""
    n, k, expected = sums
    used = n > 0
    with np.errstate(invalid="ignore"):
        said, observed = expected / n, k / n
    other = np.flatnonzero(used & ((observed <= said) if above else (observed >= said)))
    start = int(other[-1]) + 1 if len(other) else 0
    low, high = clopper_pearson(k / phi, n / phi, (1 - CONFIDENCE) / (2 * max(int(used.sum()), 1)))
    beyond = np.flatnonzero(used & ((low > said) if above else (high < said)))
    beyond = beyond[beyond >= start]
    return int(beyond[0]) if len(beyond) else None


def _phi(
    group: NDArray[np.intp],
    size: int,
    chosen: NDArray[np.bool_],
    columns: CellColumns,
    raw: NDArray[np.float64],
    pane_ms: int,
) -> float:
    """1 with too few days."""
    day = columns.pane * pane_ms // DAY_MS
    days, place = np.unique(day[chosen], return_inverse=True)
    cell = place.reshape(-1) * size + group[chosen]
    shape = len(days), size
    n, error, variance = (
        np.bincount(cell, term[chosen], len(days) * size).astype(np.float64).reshape(shape)
        for term in (columns.labelled, columns.positives - columns.labelled * raw, columns.labelled * raw * (1 - raw))
    )
    mean = error.sum(axis=0) / np.maximum(n.sum(axis=0), 1e-9)
    return overdispersion(error - n * mean, variance) or 1.0


def _periods(columns: CellColumns, pane_ms: int) -> tuple[NDArray[np.intp], list[str]]:
    """(k,) the period of each cell, and the names of all, in order."""
    days, of_day = np.unique(columns.pane * pane_ms // DAY_MS, return_inverse=True)
    dates = [datetime.fromtimestamp(int(day) * 86_400, tz=timezone.utc) for day in days]
    weekly = len(days) > 0 and int(days[-1] - days[0]) < WEEKLY_DAYS
    # Day 4 of the epoch was a Monday.
    named = [
        _day_text((int(day) - 4) // 7 * 7 + 4) if weekly else f"{date:%Y-%m}"
        for day, date in zip(days, dates, strict=True)
    ]
    names = sorted(set(named))
    place = np.array([names.index(name) for name in named], dtype=np.intp)
    return (place[of_day.reshape(-1)] if len(place) else np.empty(0, np.intp)), names


def _day_text(day: int) -> str:
    return f"{datetime.fromtimestamp(day * 86_400, tz=timezone.utc):%Y-%m-%d}"
