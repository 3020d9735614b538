"""A trial on one table of predictions: what is wrong with the scores now, and what stream-calib would have done."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec

from stream_calib.backtest.comparison.assemble import assemble
from stream_calib.backtest.document import BacktestDocument, Interval
from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.outcome import AlarmFigures, DayFigures, GroupFigures, PolicyOutcome, RefitFigures
from stream_calib.backtest.policies.run import WARM_UP_DAYS, run_policy
from stream_calib.backtest.policies.run_columns import cell_columns
from stream_calib.backtest.policies.stepping import serves_from
from stream_calib.backtest.tables.cells import cells_of_tables, span_of
from stream_calib.backtest.tables.duckdb_files import connect, open_files
from stream_calib.backtest.tables.engine import DuckDBEngine
from stream_calib.backtest.trial.columns import DAY_MS, KEY, TrialColumns
from stream_calib.backtest.trial.groups import WrongGroup, wrong_groups
from stream_calib.config import Config
from stream_calib.drift.served_words import before_the_first_serves
from stream_calib.errors import HistoryError
from stream_calib.refit.groups import family_rules

POLICY = "default"
RECENT_DAYS = 28
"""At least so many days are "now", where there are so many: from the beginning of a month on."""
MOST_GROUPS = 50
"""Kept of the wrong ones."""
_TOLD_BY_REFITS = ("refit_refused",)


class TrialQuality(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of probabilities, over labelled predictions."""

    log_loss: float
    brier: float
    ece: float
    """20 bins of equal width."""
    ece_of_perfect: float
    """What true probabilities would show, by chance, in these bins."""


class TrialGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wrong: WrongGroup
    calibrated: float | None
    """Mean of the probability that stream-calib would have served in the same days; None where it is not among the 200
    largest groups."""


class TrialRefits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    asked: int
    published: int
    max_age_ms: int
    """How old a calibrator may become here; live it is a day."""
    refused: dict[str, int]
    """Why, by reason; one refit may have several."""
    first_served_ms: int | None
    """From when on the first calibrator would have served: outcomes come a horizon late. None: none was published."""


class TrialAlarm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    at_ms: int
    """When it would have been told, with horizon and lateness behind the pane."""
    kind: str
    what: str


class Trial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is printed, and written by `--json`."""

    source: str
    counts: dict[str, int]
    """Rows by what became of them."""
    first_ms: int
    last_ms: int
    """Of event times."""
    pane_ms: int
    horizon_ms: int
    label_times: bool
    """Outcomes are dated by a column; else each counts as known at the horizon."""
    recent_from_ms: int
    """"Now" begins there; it ends with the last labels that are final."""
    recent_until_ms: int
    recent_labelled: int
    said: float
    """Mean score of these."""
    observed: float
    """Rate of positives."""
    raw: TrialQuality
    calibrated: TrialQuality
    """What would have been served in these days; the raw score until there was a calibrator."""
    counted_from_ms: int
    """The days behind the warm-up, up to `recent_until_ms`, in which everything learned came from days before."""
    counted_raw: TrialQuality
    counted_calibrated: TrialQuality
    saved: Interval | None
    """Log-loss that a prediction of these days has less by being calibrated; None where they are too few."""
    groups_looked_at: int
    groups_wrong: int
    groups: list[TrialGroup]
    """The worst of the wrong ones."""
    refits: TrialRefits
    alarms: list[TrialAlarm]
    """That were opened, but for those of refits that were refused."""

    def encode(self) -> bytes:
        return msgspec.json.encode(self, order="deterministic")


class TrialRun(NamedTuple):
    trial: Trial
    history: CellHistory
    outcome: PolicyOutcome
    config: Config
    document: BacktestDocument
    """Of the report."""


def try_files(
    paths: Sequence[Path],
    columns: TrialColumns,
    horizon_ms: int,
    on_progress: Callable[[str, int, int], None] = lambda what, done, of: None,
) -> TrialRun:
    """`on_progress`: what is done, and how far it is.

    Raises HistoryError where the files cannot be read, a column is missing or of the wrong type, or there are too few
    days with final labels to say anything.
    """
    with connect() as connection:
        on_progress("reading", 0, 1)
        engine, table = DuckDBEngine(connection), open_files(connection, paths)
        scores, labels = columns.of_scores(engine, table), columns.of_labels(engine, table)
        span = span_of(engine, table, scores, labels, KEY)
        columns.check_groups(engine, table)
        config = columns.config(span, horizon_ms)
        history = cells_of_tables(engine, table, scores, None, labels, config, KEY)
        _check_counted(history, lambda: columns.shown_labels(engine, table))
    days = (history.last_matured + 1) * history.pane_ms // DAY_MS - span[0] // DAY_MS
    if history.last_matured < history.first_pane or days < 1:
        raise HistoryError(
            f"{history.source}: no whole UTC day has outcomes that are final, which they are a horizon"
            f" ({horizon_ms / DAY_MS:g} d) before the newest one; give more days, or where there are label times a"
            " shorter --horizon"
        )
    outcome = run_policy(
        history,
        config,
        name=POLICY,
        warm_up_days=min(WARM_UP_DAYS, days // 3),
        on_progress=lambda done, of: on_progress("trying", done, of),
    )
    document = assemble(history, [outcome], outcome.policy)
    trial = trial_of(
        history, outcome, config, span, columns.label_time is not None, saved=document.raw.log_loss_difference
    )
    return TrialRun(trial, history, outcome, config, document)


def _check_counted(history: CellHistory, shown_labels: Callable[[], str]) -> None:
    """Raises HistoryError where most rows could not be counted: findings would be of the others alone."""
    counts = history.counts
    sides = {
        side: {name: n for name, n in counts.items() if name.startswith(f"{side}_rejected_")}
        for side in ("scores", "labels")
    }
    reasons = {side: ", ".join(f"{name} {n:,}" for name, n in found.items()) for side, found in sides.items()}
    if (refused := sum(sides["scores"].values())) > counts["accepted"]:
        raise HistoryError(
            f"{history.source}: {refused:,} of {counts['rows']:,} rows cannot be counted ({reasons['scores']}): are"
            " scores in percent or logits (--scale), or times in another unit (--time-unit)?"
        )
    labels = counts.get("labels", 0)
    if not labels or sum(sides["labels"].values()) > labels:
        what = "most outcomes cannot be counted, as they are not" if labels else "no row has an outcome that is"
        because = f" ({reasons['labels']})" if reasons["labels"] else ""
        raise HistoryError(
            f"{history.source}: {what} 0, 1, true or false{because}; the column holds {shown_labels()}: make 1 of what"
            " is positive and 0 of what is not"
        )


def trial_of(
    history: CellHistory,
    outcome: PolicyOutcome,
    config: Config,
    span_ms: tuple[int, int],
    label_times: bool,
    *,
    saved: Interval | None,
) -> Trial:
    """What the cells and the policy's outcome say. Raises HistoryError where no day that counts has labels."""
    pane_ms = history.pane_ms
    until_ms = (history.last_matured + 1) * pane_ms
    recent_from = max(outcome.scored_from_day, _month_start((until_ms - 1) // DAY_MS - (RECENT_DAYS - 1)))
    counted = [day for day in outcome.days if outcome.scored_from_day <= day.day and day.day * DAY_MS < until_ms]
    recent = [day for day in counted if recent_from <= day.day]
    labelled = sum(day.raw.labelled for day in recent)
    if not labelled:
        raise HistoryError(f"{history.source}: none of the last days has labels that are final; nothing can be said")
    columns = cell_columns(history, config)
    looked_at, wrong = wrong_groups(columns, recent_from * DAY_MS // pane_ms, family_rules(config), pane_ms)
    figures = {group.group: group for group in outcome.groups}
    month = _month(recent_from)
    published = [refit for refit in outcome.refits if refit.outcome == "published"]
    return Trial(
        source=history.source,
        counts=dict(history.counts),
        first_ms=span_ms[0],
        last_ms=span_ms[1],
        pane_ms=pane_ms,
        horizon_ms=config.windows.horizon_ms,
        label_times=label_times,
        recent_from_ms=recent_from * DAY_MS,
        recent_until_ms=until_ms,
        recent_labelled=round(labelled),
        said=sum(day.raw.probability for day in recent) / labelled,
        observed=sum(day.raw.positives for day in recent) / labelled,
        raw=_quality(recent, raw=True),
        calibrated=_quality(recent, raw=False),
        counted_from_ms=outcome.scored_from_day * DAY_MS,
        counted_raw=_quality(counted, raw=True),
        counted_calibrated=_quality(counted, raw=False),
        saved=saved,
        groups_looked_at=looked_at,
        groups_wrong=len(wrong),
        groups=[TrialGroup(one, _served(figures.get(one.group), month)) for one in wrong[:MOST_GROUPS]],
        refits=TrialRefits(
            asked=len(outcome.refits),
            published=len(published),
            max_age_ms=config.refit.max_age_ms,
            refused=dict(Counter(code for refit in outcome.refits for code in refit.codes)),
            first_served_ms=serves_from(published[0].pane, config) * pane_ms if published else None,
        ),
        alarms=[
            TrialAlarm(serves_from(alarm.pane, config) * pane_ms, alarm.kind, _told(alarm, published, config))
            for alarm in outcome.alarms
            if alarm.state == "open" and alarm.kind not in _TOLD_BY_REFITS
        ],
    )


def _told(alarm: AlarmFigures, published: Sequence[RefitFigures], config: Config) -> str:
    """Before the first calibrator serves, what an alarm calls served is what one says that is not in use yet."""
    if published and alarm.pane >= serves_from(published[0].pane, config):
        return alarm.what
    return before_the_first_serves(alarm.what)


def _quality(days: Sequence[DayFigures], *, raw: bool) -> TrialQuality:
    sums = [day.raw if raw else day.served for day in days]
    n = sum(one.labelled for one in sums)
    bins = zip(*(day.raw_bins if raw else day.bins for day in days), strict=True)
    ece = perfect = 0.0
    for parts in bins:
        weight, positives, probability = (sum(part[i] for part in parts) for i in range(3))
        if weight > 0:
            mean = probability / weight
            ece += abs(positives - probability) / n
            # The mean absolute value of a bin's noise, by normal approximation (metrics.ece_of_perfect).
            perfect += math.sqrt(2 / math.pi * mean * (1 - mean) * weight) / n
    return TrialQuality(sum(one.log_loss for one in sums) / n, sum(one.squared_error for one in sums) / n, ece, perfect)


def _served(group: GroupFigures | None, month: str) -> float | None:
    """Mean of what was served from that month on."""
    if group is None:
        return None
    months = [sums for name, sums in group.months.items() if name >= month]
    labelled = sum(sums[0] for sums in months)
    return sum(sums[2] for sums in months) / labelled if labelled else None


def _month(day: int) -> str:
    return f"{date(1970, 1, 1) + timedelta(days=day):%Y-%m}"


def _month_start(day: int) -> int:
    when = date(1970, 1, 1) + timedelta(days=day)
    return (when.replace(day=1) - date(1970, 1, 1)).days
