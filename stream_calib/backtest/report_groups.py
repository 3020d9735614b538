"""The heat map of groups by month: how many more, or fewer, positives came than the current policy had said."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stream_calib.backtest.outcome import DayFigures, GroupFigures, PolicyOutcome, Sums
from stream_calib.backtest.report_series import counted_days, overdispersion
from stream_calib.calibration.metrics.binomial_bounds import clopper_pearson
from stream_calib.pages.texts import count_text, percent_text, signed_percent_text

MOST_GROUPS = 40
MOST_MONTHS = 24
_BLOCK_DAYS = 28
_STEPS = (0.1, 0.25)
"""Shares by which positives are off from which on a colour is stronger."""


@dataclass(frozen=True, slots=True)
class GroupCell:
    text: str
    """`+12 %`: 12 % more came true than was said."""
    said: str
    """The same in words."""
    css: str
    """`more` or `less` with its strength 1 to 3 where it is beyond chance, else empty."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    family: str
    group: str
    labelled: float
    whole: GroupCell
    raw: GroupCell
    """Of the raw score, over all months."""
    months: Sequence[GroupCell]


@dataclass(frozen=True, slots=True)
class GroupMap:
    """The worst groups first, bounded."""

    months: Sequence[str]
    rows: Sequence[GroupRow]
    groups: int
    """In all; so the next."""
    all_months: int
    design_effect: float
    """By which a row of everybody counts less, because those of one day are not independent."""


def group_map(outcome: PolicyOutcome) -> GroupMap:
    """Of what the policy served, over the days that count.

    A cell is beyond chance where what was said lies outside of the Clopper-Pearson interval of what came true, with
    95 % for all cells shown together. Rows of one day are not independent: a group of m rows a day has n / phi of its
    n rows, phi = 1 + (m - 1) rho (Kish, "Survey sampling", 1965, 5.4), with the rho of everybody.
    """
    days = counted_days(outcome)
    labelled_days = max(sum(day.served.labelled > 0 for day in days), 1)
    phi = _design_effect(days)
    mean_day = sum(day.served.labelled for day in days) / labelled_days
    rho = min(max((phi - 1) / (mean_day - 1), 0.0), 1.0) if mean_day > 1 else 0.0
    all_months = sorted({month for group in outcome.groups for month in group.months})
    months = all_months[-MOST_MONTHS:]
    ordered = sorted(outcome.groups, key=lambda one: (-_standard_error_multiple(one.served), one.family, one.group))
    shown = ordered[:MOST_GROUPS]
    cells = max(len(shown) * (len(months) + 2), 1)

    def row(one: GroupFigures) -> GroupRow:
        a_day = one.served.labelled / labelled_days
        effect = 1 + max(a_day - 1, 0.0) * rho
        name = f"{one.family}: {one.group}"

        def cell(when: str, labelled: float, positives: float, probability: float) -> GroupCell:
            return _cell(f"{name}, {when}", labelled, positives, probability, effect, cells)

        served, raw = one.served, one.raw
        return GroupRow(
            one.family,
            one.group,
            served.labelled,
            cell("all months", served.labelled, served.positives, served.probability),
            cell("all months, raw score", raw.labelled, raw.positives, raw.probability),
            [cell(month, *one.months.get(month, (0.0, 0.0, 0.0))) for month in months],
        )

    return GroupMap(months, [row(one) for one in shown], len(ordered), len(all_months), phi)


def _cell(where: str, labelled: float, positives: float, probability: float, effect: float, cells: int) -> GroupCell:
    if labelled <= 0 or probability <= 0:
        return GroupCell("", f"{where}: no labels", "")
    said, rate = probability / labelled, positives / labelled
    off = positives / probability - 1
    n = np.array([labelled / effect])
    low, high = (float(bound[0]) for bound in clopper_pearson(n * rate, n, 0.05 / (2 * cells)))
    words = (
        f"{where}: {count_text(labelled)} labelled, said {percent_text(said)}, came true {percent_text(rate)},"
        f" {percent_text(abs(off), 0)} {'more' if off >= 0 else 'fewer'} than said"
    )
    if low <= said <= high:
        return GroupCell(signed_percent_text(off), f"{words}; chance can be all of it", "")
    strength = 1 + sum(abs(off) >= step for step in _STEPS)
    return GroupCell(signed_percent_text(off), words, f"{'more' if off > 0 else 'less'} strength{strength}")


def _standard_error_multiple(sums: Sums) -> float:
    """|positives - said| over its standard error if rows were independent: the larger, the worse."""
    if sums.labelled <= 0:
        return 0.0
    mean = min(max(sums.probability / sums.labelled, 1e-6), 1 - 1e-6)
    return abs(sums.positives - sums.probability) / math.sqrt(sums.labelled * mean * (1 - mean))


def _design_effect(days: Sequence[DayFigures]) -> float:
    """phi of everybody, at least 1. Residuals are taken about the mean of each 28 days, so that being off for months is
    not taken for noise."""
    blocks = math.ceil(len(days) / _BLOCK_DAYS)
    labelled, residual, positives = np.zeros((3, len(days), blocks))
    for place, day in enumerate(days):
        at = place, place // _BLOCK_DAYS
        labelled[at], positives[at] = day.served.labelled, day.served.positives
        residual[at] = day.served.positives - day.served.probability
    total = labelled.sum(axis=0)
    rate = np.divide(positives.sum(axis=0), total, out=np.zeros(blocks), where=total > 0)
    return overdispersion(labelled, residual, rate)[1]
