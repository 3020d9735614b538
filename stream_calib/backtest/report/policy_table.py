"""Rows of the report's policy table, as texts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stream_calib.backtest.document import Interval, PolicyFigures
from stream_calib.backtest.report.choice import Chosen, Side, side
from stream_calib.backtest.report.tables import LONGEST_NAME, LONGEST_TEXT
from stream_calib.pages.texts import NONE, count_text, figure_text, percent_text, shortened, signed_text

MOST_POLICIES = 100
_SIDES: dict[Side, str] = {"better": "better", "worse": "worse", "same": "may be chance", "unknown": "too few days"}


class FigureText(NamedTuple):
    value: str
    interval: str
    """`0.5021 to 0.5055`; empty where it is unknown."""


class DifferenceText(NamedTuple):
    value: str
    interval: str
    verdict: str
    css: str


class PolicyRow(NamedTuple):
    name: str
    marks: Sequence[str]
    """`current`, `best`."""
    settings: str
    """What differs from the configuration."""
    log_loss: FigureText
    log_loss_difference: DifferenceText | None
    brier: FigureText
    brier_difference: DifferenceText | None
    debiased_ece: FigureText
    worst_group_error: str
    alarms: str
    refits: str
    published: str
    staleness_hours: str
    coverage: str


def policy_rows(shown: Chosen) -> list[PolicyRow]:
    """The current and the best policy, then all others by log-loss, at most MOST_POLICIES; the raw score at the end."""
    document = shown.document
    first = [figures for figures in (shown.figures, shown.best_figures) if figures is not None]
    others = [figures for figures in document.table if figures not in first]
    others.sort(key=_by_loss)
    table = sorted([*first, *others[: MOST_POLICIES - len(first)]], key=_by_loss)
    overrides = {outcome.policy: outcome.overrides for outcome in document.outcomes}
    return [_policy_row(f, overrides.get(f.policy, {}), shown) for f in [*table, document.raw]]


def _settings(name: str, overrides: Mapping[str, str]) -> str:
    """Empty where the name says them, as that of a grid's policy does."""
    if all(f"{key.rpartition('.')[2]}=" in name for key in overrides):
        return ""
    return ", ".join(f"{key}={value}" for key, value in sorted(overrides.items()))


def _by_loss(figures: PolicyFigures) -> tuple[bool, float]:
    return math.isnan(figures.log_loss.value), figures.log_loss.value


def _policy_row(figures: PolicyFigures, overrides: dict[str, str], shown: Chosen) -> PolicyRow:
    raw = figures is shown.document.raw
    marks = []
    if not raw and figures.policy == shown.document.current:
        marks.append("current")
    if not raw and figures is (shown.best_figures or shown.figures) and shown.verdict != "alone":
        marks.append("lowest log-loss")
    return PolicyRow(
        "raw score" if raw else shortened(figures.policy, LONGEST_NAME),
        marks,
        shortened(_settings(figures.policy, overrides), LONGEST_TEXT),
        _figure(figures.log_loss),
        _difference(figures.log_loss_difference),
        _figure(figures.brier),
        _difference(figures.brier_difference),
        _figure(figures.debiased_ece),
        f"{figure_text(figures.worst_group_error_percent, 1)}\N{NO-BREAK SPACE}%",
        NONE if raw else count_text(figures.alarms),
        NONE if raw else count_text(figures.refits),
        "" if raw else count_text(figures.published),
        NONE if raw else figure_text(figures.staleness_hours, 1),
        percent_text(figures.coverage),
    )


def _figure(interval: Interval) -> FigureText:
    return FigureText(figure_text(interval.value), interval_text(interval, 4))


def _difference(interval: Interval | None) -> DifferenceText | None:
    if interval is None:
        return None
    seen = side(interval)
    text = interval_text(interval, 5, signed=True)
    return DifferenceText(signed_text(interval.value, 5), text, _SIDES[seen], seen)


def interval_text(interval: Interval, digits: int, signed: bool = False) -> str:
    """`0.5021 to 0.5055`; empty where it is unknown."""
    if interval.low is None or interval.high is None:
        return ""
    shown = signed_text if signed else figure_text
    return f"{shown(interval.low, digits)} to {shown(interval.high, digits)}"
