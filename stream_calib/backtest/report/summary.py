"""What the backtest found, in the sentences that a reader needs first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stream_calib.backtest.comparison.figures import scored_days
from stream_calib.backtest.document import BacktestDocument, Interval, PolicyFigures
from stream_calib.backtest.outcome import Sums
from stream_calib.backtest.report.choice import Chosen
from stream_calib.backtest.report.policy_table import interval_text
from stream_calib.backtest.report.series import DAY_MS
from stream_calib.pages.texts import (
    NONE,
    count_text,
    date_text,
    figure_text,
    percent_text,
    shortened,
    signed_percent_text,
    signed_text,
)

_LONGEST_NAME = 80


class Statement(NamedTuple):
    lead: str
    text: str


class Measure(NamedTuple):
    name: str
    raw: str
    current: str
    best: str
    says: str


def statements(shown: Chosen) -> list[Statement]:
    """What was replayed, how wrong the raw score was, what the current policy did, whether another one is better."""
    return [_replayed(shown), _raw(shown), _current(shown), _best(shown)]


def measures(shown: Chosen) -> list[Measure]:
    """The headline table; a `best` that is none stays empty."""
    raw, current, best = shown.document.raw, shown.figures, shown.best_figures

    def measure(name: str, of: str, digits: int, says: str) -> Measure:
        def value(figures: PolicyFigures | None) -> str:
            return "" if figures is None else figure_text(getattr(figures, of).value, digits)

        return Measure(name, value(raw), value(current), value(best), says)

    def error(figures: PolicyFigures | None) -> str:
        return "" if figures is None else _percent(figures.worst_group_error_percent)

    return [
        measure("Log-loss", "log_loss", 4, "overall quality of the probabilities; less is better"),
        measure("Brier", "brier", 4, "mean squared error; less is better"),
        measure("ECE", "debiased_ece", 4, "typical distance between said and true, less its noise; less is better"),
        Measure(
            "Worst group error",
            error(raw),
            error(current),
            error(best),
            "largest one-sided error in any group, small groups weigh less; less is better",
        ),
        Measure(
            "AUC",
            figure_text(shown.current.raw_auc),
            figure_text(shown.current.auc),
            "" if shown.best is None else figure_text(shown.best.auc),
            "how well positives are ranked; more is better",
        ),
    ]


def _replayed(shown: Chosen) -> Statement:
    document, current = shown.document, shown.current
    days, counted = current.days, scored_days(current)
    scored = sum(day.scored for day in days)
    first, end = document.first_pane * document.pane_ms, (document.last_pane + 1) * document.pane_ms
    text = (
        f"{count_text(scored)} scores of {date_text(first)} to {date_text(end - 1)}"
        f" from {shortened(document.source, 200)}, {_policies(len(document.table))}."
        f" Figures count the {count_text(len(counted))} days from {date_text(counted[0].day * DAY_MS)} on:"
        f" {count_text(_total([day.served for day in counted]).labelled)} labelled rows,"
        f" {percent_text(shown.figures.coverage)} of those whose labels were due."
    )
    return Statement("What was replayed.", text)


def _policies(n: int) -> str:
    return "with one policy" if n == 1 else f"with {n:,} policies"


def _raw(shown: Chosen) -> Statement:
    raw, total = shown.document.raw, _total([day.raw for day in scored_days(shown.current)])
    said, rate = total.probability / total.labelled, total.positives / total.labelled
    text = (
        f"It said {percent_text(said)} on average, and {percent_text(rate)} came true. Its log-loss was"
        f" {figure_text(raw.log_loss.value)}; typically it was off by {_points(raw.debiased_ece.value)}, and in the"
        f" worst group by {_percent(raw.worst_group_error_percent)}."
    )
    return Statement("How wrong the raw score was.", text)


def _current(shown: Chosen) -> Statement:
    raw, figures = shown.document.raw, shown.figures
    change = figures.log_loss.value - raw.log_loss.value
    identity = sum(day.identity for day in scored_days(shown.current))
    verb = "lowered" if change < 0 else "raised" if change > 0 else "left"
    share = signed_percent_text(change / raw.log_loss.value, 1) if raw.log_loss.value > 0 else NONE
    text = (
        f"It {verb} the log-loss from {figure_text(raw.log_loss.value)} to {figure_text(figures.log_loss.value)}"
        f" ({share}{_interval(raw.log_loss_difference, '; saved a row, with 95 %: ')}"
        f"{_chance(raw.log_loss_difference)}), the typical error from"
        f" {_points(raw.debiased_ece.value)} to {_points(figures.debiased_ece.value)}, that of the worst group from"
        f" {_percent(raw.worst_group_error_percent)} to {_percent(figures.worst_group_error_percent)}. It published"
        f" {count_text(figures.published)} of {count_text(figures.refits)} refits, and opened"
        f" {count_text(figures.alarms)} {'alarm' if figures.alarms == 1 else 'alarms'}."
    )
    if identity:
        text += f" {count_text(identity)} labelled rows were served raw, as there was no snapshot yet."
    return Statement(f"What the current policy did ({shortened(shown.current.policy, _LONGEST_NAME)}).", text)


def _best(shown: Chosen) -> Statement:
    head = "Is another policy better?"
    if shown.verdict == "alone":
        return Statement(head, "No other was tried.")
    if shown.best_figures is None:
        others = len(shown.document.table) - 1
        seen = "none of them has" if others > 1 else "it does not have"
        return Statement(head, f"No: of {_others(others)}, {seen} a lower log-loss.")
    best, difference = shown.best_figures, shown.best_figures.log_loss_difference
    lead = shown.figures.log_loss.value - best.log_loss.value
    name = f"\N{LEFT DOUBLE QUOTATION MARK}{shortened(best.policy, _LONGEST_NAME)}\N{RIGHT DOUBLE QUOTATION MARK}"
    seen = (
        f"{name} has the lowest log-loss, {figure_text(lead, 5)} a row less than the current one has"
        f"{_interval(_negated(difference), '; with 95 %: ')}"
    )
    optimism = shown.document.optimism
    picked = "" if optimism is None else figure_text(max(optimism.optimism, 0.0), 5)
    tried = len(shown.document.table)
    says = {
        "better": (
            "Yes, beyond chance:",
            f"{seen}."
            + (
                f" The lead is larger than what picking the best of {tried:,} brings by itself ({picked})."
                if picked
                else " The interval holds for this one comparison."
            ),
        ),
        "doubtful": (
            "Perhaps:",
            f"{seen}. Taken alone that is beyond chance, but {tried:,} policies were tried: read the warning below.",
        ),
        "picked": (
            "Not shown:",
            f"{seen}. Taken alone that would be beyond chance, but picking the best of {tried:,} policies"
            f" brings {picked} by itself.",
        ),
        "unclear": ("Not shown:", f"{seen}. That may be chance: the interval holds 0."),
        "unknown": ("Cannot be told:", f"{seen}. There are too few days for an interval."),
    }
    verdict, text = says[shown.verdict]
    return Statement(head, f"{verdict} {text}")


def optimism_text(document: BacktestDocument) -> str:
    """The nested forward evaluation in words; empty where there is none."""
    one = document.optimism
    if one is None:
        return ""
    return (
        f"{one.policies:,} policies were tried, and the best of many always looks better than it is. Following, on"
        f" each day, the policy with the least loss up to the day before would have had a log-loss of"
        f" {figure_text(one.followed_log_loss, 5)}; the one picked at the end, {shortened(one.best, _LONGEST_NAME)},"
        f" has {figure_text(one.best_log_loss, 5)} on the same days. The difference,"
        f" {signed_text(one.optimism, 5)}, is what picking afterwards adds."
    )


def _others(n: int) -> str:
    return f"{n:,} other policies" if n > 1 else "the one other policy"


def _interval(saved: Interval | None, lead: str) -> str:
    """The lead and `+0.00010 to +0.00020`; empty where it is unknown."""
    text = "" if saved is None else interval_text(saved, 5, signed=True)
    return f"{lead}{text}" if text else ""


def _chance(saved: Interval | None) -> str:
    if saved is None or saved.low is None or saved.high is None or not saved.low <= 0 <= saved.high:
        return ""
    return ", which may be chance"


def _negated(one: Interval | None) -> Interval | None:
    if one is None or one.low is None or one.high is None:
        return None
    return Interval(-one.value, -one.high, -one.low)


def _points(share: float) -> str:
    """Of the debiased ECE, which is 0 where what is seen is not beyond its noise."""
    return f"{100 * share:.1f} points" if share else "no more than noise"


def _percent(value: float) -> str:
    return f"{figure_text(value, 1)}\N{NO-BREAK SPACE}%"


def _total(sums: Sequence[Sums]) -> Sums:
    """Over days."""
    return Sums(
        sum(one.labelled for one in sums),
        sum(one.positives for one in sums),
        sum(one.probability for one in sums),
        sum(one.log_loss for one in sums),
        sum(one.squared_error for one in sums),
    )
