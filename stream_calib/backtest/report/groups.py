"""The heat map of groups by month: how many more, or fewer, positives came than the current policy had said."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stream_calib.backtest.comparison.bootstrap import Column, block_days
from stream_calib.backtest.comparison.figures import scored_days
from stream_calib.backtest.outcome import DayFigures, GroupFigures, PolicyOutcome, Sums
from stream_calib.calibration.metrics.binomial_bounds import clopper_pearson
from stream_calib.pages.texts import count_text, percent_text, shortened, signed_percent_text

MOST_GROUPS = 40
MOST_MONTHS = 24
_BLOCKS = 4
"""Blocks of days whose mean residual is their common error; what they scatter about it is noise."""
_LONGEST_NAME = 120
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
    certain: float = 0.0
    """Probability that is misjudged at least: from what was said to the interval of what came true; 0 within it."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    name: str
    labelled: float
    whole: GroupCell
    raw: GroupCell
    """Of the raw score, over all months."""
    months: Sequence[GroupCell]


@dataclass(frozen=True, slots=True)
class GroupMap:
    """Groups that are off beyond chance first, the one that is so by most before the others; of the rest, those that
    are so in most months, then large ones, first. Bounded."""

    months: Sequence[str]
    rows: Sequence[GroupRow]
    groups: int
    """In all; so the next."""
    all_months: int
    design_effect: float
    """By which a row of everybody counts less, because those of the same days are not independent."""


def group_map(outcome: PolicyOutcome) -> GroupMap:
    """Of what the policy served, over the days that count.

    A cell is beyond chance where what was said lies outside of the Clopper-Pearson interval of what came true, with
    95 % for all cells of all groups together, as those that are shown are chosen by it. Rows of one block of days are
    not independent: a group of m rows a block has n / phi of its n rows, phi = 1 + (m - 1) rho (Kish, "Survey
    sampling", 1965, 5.4), with the rho of everybody. Raises BacktestError without labels.
    """
    days = scored_days(outcome)
    length = block_days(len(days))
    blocks = len(days) / length
    phi = _design_effect(days, length)
    a_block = sum(day.served.labelled for day in days) / blocks
    rho = min((phi - 1) / (a_block - 1), 1.0) if a_block > 1 else 0.0
    all_months = sorted({month for group in outcome.groups for month in group.months})
    months = all_months[-MOST_MONTHS:]

    def effect(sums: Sums) -> float:
        return 1 + max(sums.labelled / blocks - 1, 0.0) * rho

    cells = max(len(outcome.groups) * (len(months) + 2), 1)

    def row(one: GroupFigures) -> GroupRow:
        name = shortened(_name(one), _LONGEST_NAME)

        def cell(when: str, labelled: float, positives: float, probability: float) -> GroupCell:
            return _cell(f"{name}, {when}", labelled, positives, probability, effect(one.served), cells)

        served, raw = one.served, one.raw
        return GroupRow(
            name,
            served.labelled,
            cell("all months", served.labelled, served.positives, served.probability),
            cell("all months, raw score", raw.labelled, raw.positives, raw.probability),
            [cell(month, *one.months.get(month, (0.0, 0.0, 0.0))) for month in months],
        )

    def order(one: GroupRow) -> tuple[float, int, float, str]:
        return -one.whole.certain, -sum(bool(cell.css) for cell in one.months), -one.labelled, one.name

    rows = sorted((row(one) for one in outcome.groups), key=order)
    return GroupMap(months, rows[:MOST_GROUPS], len(rows), len(all_months), phi)


def _name(one: GroupFigures) -> str:
    """`carrier=UA & origin=EWR` says its family; the name of a predicate does not."""
    return one.group if "=" in one.group or one.family == one.group else f"{one.family}: {one.group}"


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
    css = f"{'more' if off > 0 else 'less'} strength{strength}"
    return GroupCell(signed_percent_text(off), words, css, max(low - said, said - high))


def _design_effect(days: Sequence[DayFigures], length: int) -> float:
    """phi of everybody, at least 1: the variance of residual sums by blocks of `length` days over that of independent
    rows, about the mean of each _BLOCKS blocks (a ratio estimator: Cochran, "Sampling techniques", 1977, 6.3)."""
    blocks = math.ceil(len(days) / length)
    parts = math.ceil(blocks / _BLOCKS)
    labelled, residual, positives = np.zeros((3, blocks, parts))
    for place, day in enumerate(days):
        at = place // length, place // length // _BLOCKS
        labelled[at] += day.served.labelled
        positives[at] += day.served.positives
        residual[at] += day.served.positives - day.served.probability
    total, counted = labelled.sum(axis=0), (labelled > 0).sum(axis=0)
    rate, mean = (_ratio(sums.sum(axis=0), total) for sums in (positives, residual))
    squares = ((residual - labelled * mean) ** 2).sum(axis=0) * _ratio(counted, counted - 1)
    variance = float((total * rate * (1 - rate))[counted > 1].sum())
    return max(1.0, float(squares.sum()) / variance) if variance > 0 else 1.0


def _ratio(above: Column, below: Column) -> Column:
    return np.divide(above, below, out=np.zeros(len(above)), where=below > 0)
