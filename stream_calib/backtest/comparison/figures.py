"""The line of a policy in the table: figures over the days that count, with intervals by drawing days."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.alerts.model import SEVERITY
from stream_calib.backtest.comparison.bootstrap import Column, DayDraws
from stream_calib.backtest.document import Interval, PolicyFigures
from stream_calib.backtest.outcome import DayFigures, PolicyOutcome
from stream_calib.errors import BacktestError
from stream_calib.refit.settings import DAY_MS
from stream_calib.snapshot.figures import rounded_figure

RAW = "raw score"
"""Name of the line that no policy made."""
_HOUR_MS = 3_600_000
TOLD = frozenset(kind for kind, severity in SEVERITY.items() if severity != "info")
"""Kinds of alerts that somebody is told of; each refit has an alert of its own for the record."""


@dataclass(frozen=True, slots=True, eq=False)
class DayColumns:
    """What was served, or the raw score, by day; (d,) and (d, RELIABILITY_BINS), sums by weight of labelled winners."""

    labelled: Column
    log_loss: Column
    squared_error: Column
    bin_labelled: NDArray[np.float64]
    bin_positives: NDArray[np.float64]
    bin_probability: NDArray[np.float64]

    @classmethod
    def served(cls, days: Sequence[DayFigures]) -> DayColumns:
        sums = np.array([(day.served.labelled, day.served.log_loss, day.served.squared_error) for day in days])
        return cls(*sums.T, *np.array([day.bins for day in days]).transpose(2, 0, 1))

    @classmethod
    def raw(cls, days: Sequence[DayFigures]) -> DayColumns:
        sums = np.array([(day.raw.labelled, day.raw.log_loss, day.raw.squared_error) for day in days])
        return cls(*sums.T, *np.array([day.raw_bins for day in days]).transpose(2, 0, 1))


def scored_days(outcome: PolicyOutcome) -> list[DayFigures]:
    """The days that count: from `scored_from_day` on, between the first and the last that has labels.

    All days that have them where the history is shorter than the warm up. Raises BacktestError without labelled scores.
    """
    labelled = [place for place, day in enumerate(outcome.days) if day.served.labelled > 0]
    if not labelled:
        raise BacktestError(
            f"policy {outcome.policy}: the history has no score with a final label, so nothing can be compared; it must"
            " reach over windows.horizon and label_lateness at least, and labels must name the ids of the scores"
        )
    counted = [place for place in labelled if outcome.days[place].day >= outcome.scored_from_day] or labelled
    return outcome.days[counted[0] : counted[-1] + 1]


def is_warm_up_only(outcome: PolicyOutcome) -> bool:
    """Whether no day behind the warm up has labels."""
    return all(day.served.labelled <= 0 for day in outcome.days if day.day >= outcome.scored_from_day)


def policy_figures(outcome: PolicyOutcome, current: PolicyOutcome, draws: DayDraws, pane_ms: int) -> PolicyFigures:
    """The line of a policy; `draws` are of `scored_days`.

    Raises BacktestError where the two were not run over the same days.
    """
    days = scored_days(outcome)
    own, other = DayColumns.served(days), None
    if outcome is not current:
        other = DayColumns.served(_same_days(outcome, current))
    told = [alarm for alarm in outcome.alarms if alarm.state == "open" and alarm.kind in TOLD]
    first = days[0].day
    refits = [refit for refit in outcome.refits if refit.pane * pane_ms // DAY_MS >= first]
    return _line(
        outcome.policy,
        outcome.worst_group_error_percent,
        days,
        own,
        other,
        draws,
        alarms=sum(alarm.pane * pane_ms // DAY_MS >= first for alarm in told),
        refits=len(refits),
        published=sum(refit.outcome == "published" for refit in refits),
        staleness_hours=_staleness_ms(days) / _HOUR_MS,
    )


def raw_figures(current: PolicyOutcome, draws: DayDraws) -> PolicyFigures:
    """The line of the raw score, over the days of the current policy."""
    days = scored_days(current)
    own, other = DayColumns.raw(days), DayColumns.served(days)
    error = current.raw_worst_group_error_percent
    return _line(RAW, error, days, own, other, draws, alarms=0, refits=0, published=0, staleness_hours=0.0)


def debiased_squared_ece(columns: DayColumns, draws: DayDraws) -> float:
    """Sum over bins of w (d^2 - v): w the bin's share of the weight, d its rate less its mean probability, v variance
    of d.

    The estimator of Kumar, Liang, Ma, "Verified uncertainty calibration", 2019, section 5, but v is the larger of that
    of independent labels, rate (1 - rate) / (n - 1), and that by blocks of days: where labels of a day share a shock,
    the former leaves the shocks in, and the error of a perfect calibrator would not be 0 on average. Can be below 0.
    """
    n = columns.bin_labelled.sum(axis=0)
    used = n > 1 + 1e-9  # of one row there is no estimate of the noise
    n, off = n[used], (columns.bin_positives - columns.bin_probability)[:, used]
    rate, gap = columns.bin_positives.sum(axis=0)[used] / n, off.sum(axis=0) / n
    by_days = draws.variance(off - gap * columns.bin_labelled[:, used]) / n**2
    noise = np.fmax(rate * (1 - rate) / (n - 1), by_days)
    return float((n * (gap**2 - noise)).sum() / columns.labelled.sum())


def _line(
    name: str,
    worst_group_error_percent: float,
    days: Sequence[DayFigures],
    own: DayColumns,
    other: DayColumns | None,
    draws: DayDraws,
    *,
    alarms: int,
    refits: int,
    published: int,
    staleness_hours: float,
) -> PolicyFigures:
    return PolicyFigures(
        policy=name,
        log_loss=mean_interval(own.log_loss, own.labelled, draws),
        brier=mean_interval(own.squared_error, own.labelled, draws),
        debiased_ece=ece_interval(own, draws),
        worst_group_error_percent=rounded_figure(worst_group_error_percent),
        alarms=alarms,
        refits=refits,
        published=published,
        staleness_hours=rounded_figure(staleness_hours),
        coverage=rounded_figure(_coverage(days)),
        log_loss_difference=None
        if other is None
        else difference_interval(own.log_loss, other.log_loss, own, other, draws),
        brier_difference=None
        if other is None
        else difference_interval(own.squared_error, other.squared_error, own, other, draws),
    )


def mean_interval(sums: Column, labelled: Column, draws: DayDraws) -> Interval:
    """Of the mean a row, from sums and labelled weights (d,) by day."""
    return _interval(float(sums.sum() / labelled.sum()), _means(sums, labelled, draws), draws)


def difference_interval(
    sums: Column, other_sums: Column, own: DayColumns, other: DayColumns, draws: DayDraws
) -> Interval:
    """Of the difference of two means a row, both of the same draws."""
    value = float(sums.sum() / own.labelled.sum() - other_sums.sum() / other.labelled.sum())
    drawn = _means(sums, own.labelled, draws) - _means(other_sums, other.labelled, draws)
    return _interval(value, drawn, draws)


def ece_interval(columns: DayColumns, draws: DayDraws) -> Interval:
    """The root of the debiased squared ECE.

    A draw's plain squared ECE is higher by the noise that drawing adds, as that of the data is higher by its own; so
    the draws are moved by their mean to the debiased figure (bias correction: Efron, Tibshirani, "An introduction to
    the bootstrap", 1993, section 10.6) before their percentiles are taken.
    """
    value = debiased_squared_ece(columns, draws)
    labelled = draws.sums(columns.bin_labelled)
    gap = draws.sums(columns.bin_positives - columns.bin_probability)
    squared = np.divide(gap**2, labelled, out=np.zeros_like(gap), where=labelled > 0).sum(axis=1)
    plain = _ratio(squared, labelled.sum(axis=1))
    found = draws.interval(plain - np.nanmean(plain) + value)
    ends = (None, None) if found is None else tuple(rounded_figure(float(np.sqrt(max(end, 0.0)))) for end in found)
    return Interval(rounded_figure(float(np.sqrt(max(value, 0.0)))), *ends)


def _means(sums: Column, labelled: Column, draws: DayDraws) -> Column:
    return _ratio(draws.sums(sums), draws.sums(labelled))


def _ratio(above: Column, below: Column) -> Column:
    """(draws,) of those draws that have labels: nan where a draw is of days without any."""
    return np.divide(above, below, out=np.full_like(above, np.nan), where=below > 0)


def _interval(value: float, drawn: Column, draws: DayDraws) -> Interval:
    found = draws.interval(drawn)
    ends = (None, None) if found is None else tuple(map(rounded_figure, found))
    return Interval(rounded_figure(value), *ends)


def _coverage(days: Sequence[DayFigures]) -> float:
    """Share of winners that have a label, by number. The last day is left out where there are others: some of its panes
    may not be final."""
    whole = days[:-1] or days
    return 1 - sum(day.unlabelled for day in whole) / sum(day.scored for day in whole)


def _staleness_ms(days: Sequence[DayFigures]) -> float:
    """Mean over the scores that had a snapshot; 0 where none had.

    How many had none is known of labelled ones, and taken to be the same share of all.
    """
    served = sum(_with_snapshot(day) for day in days)
    return sum(day.staleness_ms for day in days) / served if served > 0 else 0.0


def _with_snapshot(day: DayFigures) -> float:
    labelled = day.scored - day.unlabelled
    return day.scored * (1 - day.identity / labelled) if day.identity and labelled > 0 else day.scored


def _same_days(outcome: PolicyOutcome, current: PolicyOutcome) -> list[DayFigures]:
    days, others = scored_days(outcome), scored_days(current)
    if outcome.history_sha256 != current.history_sha256 or [d.day for d in days] != [d.day for d in others]:
        raise BacktestError(
            f"policies {outcome.policy} and {current.policy} were not run over the same days of one history, so they"
            " cannot be compared; run them again"
        )
    return others
