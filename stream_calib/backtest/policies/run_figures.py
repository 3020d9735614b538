"""How probabilities fared: figures by day, of groups, and over all, from cells and what they were served."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

import numpy as np
from numpy.typing import NDArray

from stream_calib.backtest.outcome import RELIABILITY_BINS, DayFigures, GroupFigures, Sums
from stream_calib.backtest.policies.run_columns import CellColumns
from stream_calib.calibration.groups import FamilyRule, make_family
from stream_calib.calibration.metrics import auc_of_counts, log_loss_sums, worst_group_error_of_counts
from stream_calib.calibration.multicalibration.audit import EVERYTHING
from stream_calib.refit.settings import DAY_MS

MOST_GROUPS = 200
"""Groups in an outcome: those of the most labelled weight, so the same ones for every policy."""


@dataclass(frozen=True, slots=True, eq=False)
class ServedColumns:
    """What a policy did to the cells (k,) and panes (p,) of a history."""

    probability: NDArray[np.float64]
    """(k,) served."""
    identity: NDArray[np.bool_]
    """(k,) whether that is the raw score, because there was no snapshot."""
    age_ms: NDArray[np.float64]
    """(p,) age of the snapshot's data at each pane's end; nan without one."""
    psi: NDArray[np.float64]
    """(p,) PSI of all scores of the window that ends with the pane; nan where none was reported."""


@dataclass(frozen=True, slots=True)
class Fared:
    """As in PolicyOutcome."""

    days: list[DayFigures]
    groups: list[GroupFigures]
    worst_group_error_percent: float
    raw_worst_group_error_percent: float
    auc: float
    raw_auc: float


def day_figures(
    columns: CellColumns, raw: NDArray[np.float64], served: ServedColumns, pane_ms: int
) -> list[DayFigures]:
    """Every UTC day of the history's panes, in order. `raw` (k,): the raw scores of the cells."""
    panes = np.arange(columns.first_pane, columns.first_pane + len(columns.scored))
    day_of_pane = panes * pane_ms // DAY_MS
    first, days = int(day_of_pane[0]), int(day_of_pane[-1] - day_of_pane[0]) + 1
    of_pane = day_of_pane - first
    day = columns.pane * pane_ms // DAY_MS - first
    by_raw, by_served = (_sums(day, days, p, columns) for p in (raw, served.probability))
    curves = [_reliability(day, days, p, columns) for p in (served.probability, raw)]
    scored = _summed(of_pane, columns.scored, days)
    unlabelled = _summed(day, columns.unlabelled, days)
    identity = _summed(day, np.where(served.identity, columns.rows, 0), days)
    staleness = np.bincount(of_pane, np.nan_to_num(served.age_ms) * columns.scored, days)
    psi = np.full(days, -np.inf)
    np.maximum.at(psi, of_pane, np.where(np.isnan(served.psi), -np.inf, served.psi))
    return [
        DayFigures(
            day=first + i,
            scored=int(scored[i]),
            unlabelled=int(unlabelled[i]),
            identity=int(identity[i]),
            raw=by_raw[i],
            served=by_served[i],
            bins=curves[0][i],
            raw_bins=curves[1][i],
            staleness_ms=float(staleness[i]),
            psi=float(psi[i]) if np.isfinite(psi[i]) else None,
        )
        for i in range(days)
    ]


def group_figures(
    columns: CellColumns,
    chosen: slice,
    raw: NDArray[np.float64],
    served: NDArray[np.float64],
    rules: Sequence[FamilyRule],
    pane_ms: int,
) -> list[GroupFigures]:
    """Of everybody, then of the groups of the most labelled weight, from the `chosen` cells; raw and served (k,)."""
    months, month = _months(columns.pane[chosen], pane_ms)
    own = [_terms(p[chosen], columns, chosen) for p in (raw, served)]
    found: list[tuple[float, str, GroupFigures]] = []
    for rule in (EVERYTHING, *rules):
        family = make_family(rule, columns.values)
        group = family.group_of[columns.signature[chosen]]
        inside, size, names = group >= 0, len(family.keys), family.names
        group = group[inside]
        of_raw, of_served = (
            np.stack([np.bincount(group, term[inside], size) for term in terms], axis=1) for terms in own
        )
        by_month = np.stack(
            [np.bincount(group * len(months) + month[inside], term[inside], size * len(months)) for term in own[1][:3]],
            axis=1,
        ).reshape(size, len(months), 3)
        for i in np.flatnonzero(of_served[:, 0] > 0).tolist():
            figures = GroupFigures(
                family="all" if rule == EVERYTHING else rule.name.replace(" & ", " x "),
                group=names[i],
                raw=Sums(*of_raw[i].tolist()),
                served=Sums(*of_served[i].tolist()),
                months={
                    months[m]: (cell[0], cell[1], cell[2]) for m, cell in enumerate(by_month[i].tolist()) if cell[0] > 0
                },
            )
            found.append((-float(of_served[i, 0]), names[i], figures))
    everybody, others = found[:1], sorted(found[1:], key=lambda one: one[:2])
    return [figures for _, _, figures in (*everybody, *others[: MOST_GROUPS - 1])]


def auc_and_worst_group(
    columns: CellColumns, chosen: slice, probability: NDArray[np.float64], rules: Sequence[FamilyRule]
) -> tuple[float, float]:
    """AUC, and worst group error in percent over everything and the families, of the `chosen` cells; .5 and 0 where
    not both classes are there: nothing can be told then."""
    labelled, positives = columns.labelled[chosen], columns.positives[chosen]
    if not 0 < float(positives.sum()) < float(labelled.sum()):
        return 0.5, 0.0
    groups = [make_family(rule, columns.values).group_of[columns.signature[chosen]] for rule in rules]
    p, squared = probability[chosen], columns.squared[chosen]
    worst = worst_group_error_of_counts(p, labelled, positives, groups, squared=squared)
    return auc_of_counts(p, labelled, positives), worst


def _terms(
    p: NDArray[np.float64], columns: CellColumns, chosen: slice = slice(None)
) -> tuple[NDArray[np.float64], ...]:
    """In the order of `Sums`."""
    labelled, positives = columns.labelled[chosen], columns.positives[chosen]
    squared = positives * (1.0 - p) ** 2 + (labelled - positives) * p**2
    return labelled, positives, labelled * p, log_loss_sums(p, labelled, positives), squared


def _sums(day: NDArray[np.int64], days: int, p: NDArray[np.float64], columns: CellColumns) -> list[Sums]:
    by_day = np.stack([np.bincount(day, term, days) for term in _terms(p, columns)], axis=1)
    return [Sums(*row) for row in by_day.tolist()]


def _reliability(
    day: NDArray[np.int64], days: int, p: NDArray[np.float64], columns: CellColumns
) -> list[list[tuple[float, float, float]]]:
    place = day * RELIABILITY_BINS + np.minimum((p * RELIABILITY_BINS).astype(np.int64), RELIABILITY_BINS - 1)
    terms = (columns.labelled, columns.positives, columns.labelled * p)
    by_bin = np.stack([np.bincount(place, term, days * RELIABILITY_BINS) for term in terms], axis=1)
    return [[(n, k, s) for n, k, s in rows] for rows in by_bin.reshape(days, RELIABILITY_BINS, 3).tolist()]


def _summed(place: NDArray[np.int64], column: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    total = np.zeros(size, np.int64)
    np.add.at(total, place, column)
    return total


def _months(pane: NDArray[np.int64], pane_ms: int) -> tuple[list[str], NDArray[np.intp]]:
    """Names of the months that panes (k,) begin in, and (k,) the place of each one's."""
    day, of_day = np.unique(pane * pane_ms // DAY_MS, return_inverse=True)
    named = [datetime.fromtimestamp(d * DAY_MS // 1000, tz=timezone.utc).strftime("%Y-%m") for d in day.tolist()]
    months = sorted(set(named))
    place = np.array([months.index(name) for name in named], dtype=np.intp)
    return months, place[of_day.reshape(-1)] if len(place) else np.empty(0, np.intp)
