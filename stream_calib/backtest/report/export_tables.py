"""The tables of a backtest's result for programs: their columns, and how rows are made of the document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from stream_calib.backtest.comparison.figures import scored_days
from stream_calib.backtest.document import BacktestDocument, Interval, PolicyFigures
from stream_calib.backtest.outcome import PolicyOutcome, Sums

Kind: TypeAlias = Literal["string", "int64", "double", "bool", "date", "time", "strings"]
"""`time`: milliseconds, UTC; `strings`: a list of strings."""
Values: TypeAlias = list[Any]
_SUMS = ("labelled", "positives", "probability", "log_loss", "squared_error")
_SUM_TEXTS = {
    "labelled": "labelled rows, by weight",
    "positives": "positives among them, by weight",
    "probability": "sum of the probabilities",
    "log_loss": "sum of the log-losses, clipped at 1e-6",
    "squared_error": "sum of the squared errors",
}


class Column(NamedTuple):
    name: str
    kind: Kind
    says: str


class Table(NamedTuple):
    columns: Sequence[Column]
    rows: Callable[[BacktestDocument], Values]
    """Each as a tuple in the order of the columns."""


_POLICY = Column("policy", "string", "name of the policy")
_INTERVALS = {
    "log_loss": "mean log-loss a labelled row",
    "brier": "mean squared error",
    "debiased_ece": "root of the debiased squared ECE",
    "log_loss_difference": "log-loss less that of the current policy, paired; null for the current one",
    "brier_difference": "the same of the squared error",
}


def _interval_columns(name: str) -> list[Column]:
    return [
        Column(name, "double", _INTERVALS[name]),
        Column(f"{name}_low", "double", "lower end of its 95 % interval; null where there are too few days"),
        Column(f"{name}_high", "double", "upper end"),
    ]


def _sum_columns(prefix: str, of: str) -> list[Column]:
    return [Column(f"{prefix}_{name}", "double", f"{of}: {_SUM_TEXTS[name]}") for name in _SUMS]


def _policies(document: BacktestDocument) -> Values:
    outcomes = {outcome.policy: outcome for outcome in document.outcomes}
    lines: list[tuple[PolicyFigures, PolicyOutcome | None]] = [(line, outcomes[line.policy]) for line in document.table]
    return [
        (
            line.policy,
            "raw" if outcome is None else "current" if line.policy == document.current else "policy",
            None if outcome is None else [f"{key}={value}" for key, value in sorted(outcome.overrides.items())],
            None if outcome is None else outcome.config_hash,
            *(end for name in _INTERVALS for end in _ends(getattr(line, name))),
            line.worst_group_error_percent,
            *((None, None, None, None) if outcome is None else _work(line)),
            line.coverage,
        )
        for line, outcome in [*lines, (document.raw, None)]
    ]


def _work(line: PolicyFigures) -> tuple[int, int, int, float]:
    return line.alarms, line.refits, line.published, line.staleness_hours


def _ends(interval: Interval | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if interval is None else (interval.value, interval.low, interval.high)


def _days(document: BacktestDocument) -> Values:
    out = []
    for outcome in document.outcomes:
        counted = {day.day for day in scored_days(outcome)}
        out += [
            (
                outcome.policy,
                day.day,
                day.day in counted,
                day.scored,
                day.unlabelled,
                day.identity,
                *_sums(day.raw),
                *_sums(day.served),
                day.staleness_ms,
                day.psi,
            )
            for day in outcome.days
        ]
    return out


def _sums(sums: Sums) -> tuple[float, ...]:
    return tuple(getattr(sums, name) for name in _SUMS)


def _reliability(document: BacktestDocument) -> Values:
    return [
        (outcome.policy, day.day, place, *served, *raw)
        for outcome in document.outcomes
        for day in outcome.days
        for place, (served, raw) in enumerate(zip(day.bins, day.raw_bins, strict=True))
        if served[0] or raw[0]
    ]


def _refits(document: BacktestDocument) -> Values:
    return [
        (
            outcome.policy,
            (refit.pane + 1) * document.pane_ms,
            refit.pane,
            refit.kind,
            refit.reason,
            refit.outcome,
            refit.version,
            refit.codes,
            refit.gain,
            refit.gain_lower,
            refit.level,
            refit.rung,
            refit.changed,
        )
        for outcome in document.outcomes
        for refit in outcome.refits
    ]


def _alarms(document: BacktestDocument) -> Values:
    return [
        (
            outcome.policy,
            (alarm.pane + 1) * document.pane_ms,
            alarm.pane,
            alarm.id,
            alarm.kind,
            alarm.state,
            alarm.since_ms,
            alarm.groups,
            alarm.what,
        )
        for outcome in document.outcomes
        for alarm in outcome.alarms
    ]


def _groups(document: BacktestDocument) -> Values:
    return [
        (outcome.policy, group.family, group.group, *_sums(group.raw), *_sums(group.served))
        for outcome in document.outcomes
        for group in outcome.groups
    ]


def _group_months(document: BacktestDocument) -> Values:
    return [
        (outcome.policy, group.family, group.group, month, *values)
        for outcome in document.outcomes
        for group in outcome.groups
        for month, values in sorted(group.months.items())
    ]


_DAY = Column("day", "date", "UTC day of event time")
_GROUP = (
    Column("family", "string", "attributes that make the group; `all`: everybody"),
    Column("group", "string", "it"),
)
_MEANS = ("labelled rows, by weight", "positives among them", "sum of the probability served")

TABLES: Mapping[str, Table] = {
    "policies": Table(
        [
            _POLICY,
            Column("role", "string", "`current`, `policy`, or `raw`: the raw score"),
            Column("overrides", "strings", "what differs from the configuration, as `key=value`"),
            Column("config_hash", "string", "of what fits and requests depend on"),
            *(column for name in _INTERVALS for column in _interval_columns(name)),
            Column("worst_group_error_percent", "double", "largest scaled one-sided error of a group"),
            Column("alarms", "int64", "alerts opened"),
            Column("refits", "int64", "refits asked for"),
            Column("published", "int64", "of them published"),
            Column("staleness_hours", "double", "mean age of the data behind the snapshot that served"),
            Column("coverage", "double", "labelled share of the rows whose labels were due"),
        ],
        _policies,
    ),
    "days": Table(
        [
            _POLICY,
            _DAY,
            Column(
                "counted",
                "bool",
                "whether the day counts in the figures; false: it warms up, or no labels are final from it on",
            ),
            Column("scored", "int64", "scores, each id once"),
            Column("unlabelled", "int64", "of matured panes without a label"),
            Column("identity", "int64", "labelled ones served raw, as there was no snapshot yet"),
            *_sum_columns("raw", "raw score"),
            *_sum_columns("served", "what was served"),
            Column("staleness_ms", "double", "sum over scores of the age of the snapshot's data"),
            Column("psi", "double", "largest PSI of all scores; null where there was none"),
        ],
        _days,
    ),
    "reliability": Table(
        [
            _POLICY,
            _DAY,
            Column("bin", "int64", "of equal width in probability, from 0; empty ones are left out"),
            *(Column(f"served_{name}", "double", says) for name, says in zip(_SUMS[:3], _MEANS, strict=True)),
            *(Column(f"raw_{name}", "double", f"the same by bins of the raw score: {name}") for name in _SUMS[:3]),
        ],
        _reliability,
    ),
    "refits": Table(
        [
            _POLICY,
            Column("at", "time", "end of the pane at which it was asked for"),
            Column("pane", "int64", "that pane"),
            Column("kind", "string", "structure or level"),
            Column("reason", "string", "what it was asked for because of"),
            Column("outcome", "string", "published, refused, failed, held or superseded"),
            Column("version", "string", "of the snapshot that was published"),
            Column("codes", "strings", "why it was refused"),
            Column("gain", "double", "mean paired log-loss gain on the gate's rows"),
            Column("gain_lower", "double", "its lower bound"),
            Column("level", "double", "of the snapshot that was published, in log-odds"),
            Column("rung", "string", "base map that was chosen"),
            Column("changed", "string", "what it changed, in words"),
        ],
        _refits,
    ),
    "alarms": Table(
        [
            _POLICY,
            Column("at", "time", "end of the pane whose step raised it"),
            Column("pane", "int64", "that pane"),
            Column("id", "string", "of the event"),
            Column("kind", "string", "of the alert"),
            Column("state", "string", "open, update or close"),
            Column("since", "time", "start of the first pane that the alert is about"),
            Column("groups", "strings", "that it tells of"),
            Column("what", "string", "in words"),
        ],
        _alarms,
    ),
    "groups": Table(
        [_POLICY, *_GROUP, *_sum_columns("raw", "raw score"), *_sum_columns("served", "what was served")], _groups
    ),
    "group_months": Table(
        [
            _POLICY,
            *_GROUP,
            Column("month", "string", "`2013-04`, UTC"),
            *(Column(name, "double", says) for name, says in zip(_SUMS[:3], _MEANS, strict=True)),
        ],
        _group_months,
    ),
}
"""Name of the file, without `.parquet` -> what is in it."""
