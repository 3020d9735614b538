"""The fields of scores and labels as SQL over a table's columns, and the checks that refuse a row.

The text is DuckDB's dialect, with few functions, for sqlglot to carry to other engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stream_calib.backtest.tables.columns import (
    LabelColumns,
    ScoreColumns,
    Table,
    TimeColumn,
    text_literal,
)
from stream_calib.backtest.tables.values import attribute_of, id_of, is_absent, label_of, number_of, text_of, time_of
from stream_calib.events.contracts import MAX_EVENT_TIME_MS, MIN_EVENT_TIME_MS, ModelKey
from stream_calib.events.event_ids import MAX_ID_BYTES
from stream_calib.events.keep_rates import LEAST_KEEP_RATE
from stream_calib.events.model_scores import SCORE_TOLERANCE

_SCALED = {"probability": "x", "percent": "x / 100", "logit": "x"}


class Check(NamedTuple):
    """A row is refused for the first check that does not hold."""

    holds: str
    """SQL over the selected names; null where a name that it looks at is null, which an earlier check refuses."""
    reason: str


class Selected(NamedTuple):
    """One side's fields."""

    select: str
    """SQL of the select list."""
    other_model: str | None
    """SQL that holds for rows of another model; None where all are of this one."""
    checks: Sequence[Check]

    @property
    def good(self) -> str:
        """SQL that holds for the rows that count."""
        conditions = [f"({check.holds})" for check in self.checks]
        if self.other_model is not None:
            conditions.append(f"NOT ({self.other_model})")
        return " AND ".join(conditions)

    @property
    def refusal(self) -> str:
        """SQL of the reason why a row does not count; null for those that do."""
        other = "" if self.other_model is None else f"WHEN {self.other_model} THEN 'other_model' "
        cases = " ".join(f"WHEN ({check.holds}) IS NOT TRUE THEN {text_literal(check.reason)}" for check in self.checks)
        return f"CASE {other}{cases} END"


def score_fields(table: Table, columns: ScoreColumns, key: ModelKey) -> Selected:
    """Select list `id` (text), `x` (the score as it stands, double), `t` (event time, ms), `u` (unit, text), `k` (keep
    rate), `g0`, `g1`, ... (attributes, text) and `other` where there are several models.

    Raises HistoryError where a column is not there, or of a type that can hold no such value.
    """
    select, checks = [], []
    if columns.id is not None:
        select.append(f"{id_of(table, columns.id)} AS id")
        checks += _id_checks(table, columns.id)
    select.append(f"{number_of(table, columns.score, 'a score')} AS x")
    scaled = _SCALED[columns.scale]
    missing = "score_missing" if table.field(columns.score).kind == "cell" else "score_invalid"
    checks.append(Check("x IS NOT NULL AND NOT isnan(x)", missing))
    within = (
        f"x >= {-1.7976931348623157e308!r} AND x <= {1.7976931348623157e308!r}"
        if columns.scale == "logit"
        else f"{scaled} >= -{SCORE_TOLERANCE!r} AND {scaled} - 1.0 <= {SCORE_TOLERANCE!r}"
    )
    checks.append(Check(within, "score_out_of_range"))
    select.append(f"{time_of(table, columns.time, columns.zone)} AS t")
    checks += _time_checks(table, columns.time, "t")
    if columns.unit is not None:
        unit = id_of(table, columns.unit)
        fits = f"length({unit}) BETWEEN 1 AND {MAX_ID_BYTES}"
        select.append(f"CASE WHEN {fits} THEN {unit} END AS u")
    if columns.keep_rate is not None:
        rate = number_of(table, columns.keep_rate, "a keep rate")
        raw = table.field(columns.keep_rate)
        select.append(f"CASE WHEN {is_absent(raw)} THEN 1.0 ELSE {rate} END AS k")
        checks.append(Check(f"k IS NOT NULL AND k >= {LEAST_KEEP_RATE!r} AND k <= 1.0", "keep_rate_invalid"))
    select += [f"{attribute_of(table, column)} AS g{i}" for i, column in enumerate(columns.groups.values())]
    other = []
    for column, wanted in ((columns.model, key.model), (columns.version, key.version)):
        if column is not None:
            value = text_of(table, column, "the name of a model or version")
            other.append(f"({value} <> {text_literal(wanted)} OR {value} IS NULL)")
    if other:
        select.append(f"{' OR '.join(other)} AS other")
    return Selected(", ".join(select), "other" if other else None, checks)


def label_fields(table: Table, columns: LabelColumns, key: ModelKey, *, own: bool) -> Selected:
    """Select list `id` (where there is a column), `code` (1 withdrawn, 2 negative, 3 positive; in a table of scores, by
    `own`, 0 where the row has no label yet), `lt` (label time, ms; where there is a column) and `other` for labels of
    other models. Raises as `score_fields`."""
    select, checks = [], []
    if columns.id is not None:
        select.append(f"{id_of(table, columns.id)} AS id")
        checks += _id_checks(table, columns.id)
    raw = table.field(columns.label)
    select.append(f"{label_of(raw, table, columns.label, own=own)} AS code")
    checks.append(Check("code IS NOT NULL", "label_missing" if raw.kind == "cell" and not own else "label_invalid"))
    if columns.time is not None:
        time, granule = time_of(table, columns.time, columns.zone), columns.granularity_ms
        select.append(f"{time if granule == 1 else f'({time}) // {granule} * {granule} + {granule - 1}'} AS lt")
        of_label = [Check(f"code = 0 OR ({c.holds})", c.reason) for c in _time_checks(table, columns.time, "lt")]
        checks += of_label if own else _time_checks(table, columns.time, "lt")
    if columns.model is not None:
        value = text_of(table, columns.model, "the name of a model")
        select.append(f"coalesce({value}, {text_literal(key.model)}) <> {text_literal(key.model)} AS other")
    return Selected(", ".join(select), None if columns.model is None else "other", checks)


def _id_checks(table: Table, path: str) -> list[Check]:
    missing = "id_missing" if table.field(path).kind == "cell" else "id_invalid"
    return [Check("id IS NOT NULL", missing), Check(f"length(id) BETWEEN 1 AND {MAX_ID_BYTES}", "id_invalid")]


def _time_checks(table: Table, time: TimeColumn, name: str) -> list[Check]:
    missing = "time_missing" if table.field(time.column).kind == "cell" else "time_invalid"
    within = f"{name} >= {MIN_EVENT_TIME_MS} AND {name} < {MAX_EVENT_TIME_MS}"
    return [Check(f"{name} IS NOT NULL", missing), Check(within, "time_out_of_range")]
