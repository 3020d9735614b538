"""The policy table for a terminal, readable within 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from stream_calib.backtest.document import BacktestDocument, Interval, PolicyFigures

MOST_LINES = 20
"""Policies that are shown; the report has all."""
LONGEST_NAME = 16
"""Longer names stand below the table, with a number."""
_UNITS = "difference: of log-loss to the current policy, x 1,000, and 95 % of it by drawing days; below 0 is better"


def table_of(document: BacktestDocument) -> Table:
    """The raw score, the current policy, then the others from the least log-loss on.

    `difference` is that of the log-loss to the current policy in thousandths, with its interval of 95 % under it;
    below 0 is better.
    """
    current = [line for line in document.table if line.policy == document.current]
    others = sorted(
        (line for line in document.table if line.policy != document.current), key=lambda line: line.log_loss.value
    )
    shown, left = [*current, *others[: MOST_LINES - 1]], len(others[MOST_LINES - 1 :])
    labels = [line.policy if len(line.policy) <= LONGEST_NAME else f"#{place}" for place, line in enumerate(shown)]
    below = [f"{label}: {line.policy}" for label, line in zip(labels, shown, strict=True) if label != line.policy]
    below += [f"{left} more policies are in the report."] if left else []
    caption = Text("\n".join([*below, _UNITS]))
    table = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False, caption=caption, caption_justify="left")
    table.add_column("policy", overflow="fold")
    for name in ("log-loss", "difference", "ECE %", "worst %", "alarms", "refits", "age h"):
        table.add_column(name, justify="right", no_wrap=True)
    raw = document.raw
    table.add_row(Text(raw.policy), *_figures(raw), "-", "-", "-")
    for label, line in zip(labels, shown, strict=True):
        made = str(line.alarms), f"{line.published}/{line.refits}", f"{line.staleness_hours:.0f}"
        table.add_row(Text(label), *_figures(line), *made)
    return table


def _figures(line: PolicyFigures) -> Sequence[str]:
    return (
        f"{line.log_loss.value:.5f}",
        "-" if line.log_loss_difference is None else _thousandths(line.log_loss_difference),
        f"{100 * line.debiased_ece.value:.2f}",
        f"{line.worst_group_error_percent:.1f}",
    )


def _thousandths(difference: Interval) -> str:
    value = _signed(difference.value)
    if difference.low is None or difference.high is None:
        return value
    return f"{value}\n{_signed(difference.low)} .. {_signed(difference.high)}"


def _signed(difference: float) -> str:
    """In thousandths; what rounds to 0 is never below it."""
    return f"{round(1000 * difference, 2) + 0.0:+.2f}"
