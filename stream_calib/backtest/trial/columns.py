"""A trial's table: its columns by options, and the configuration that they make; nothing has to be written for it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from stream_calib.backtest.tables.columns import LabelColumns, ScoreColumns, Table, TimeColumn
from stream_calib.backtest.tables.engine import Engine, Statement
from stream_calib.backtest.tables.values import number_of_text
from stream_calib.config import Config
from stream_calib.config_models import ScoreScale
from stream_calib.config_values import duration_text
from stream_calib.errors import HistoryError
from stream_calib.events.contracts import MAX_EVENT_TIME_MS, MIN_EVENT_TIME_MS, ModelKey
from stream_calib.events.event_times import TimeUnit

KEY = ModelKey("trial", "1")
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
HOURLY_DAYS = 31
"""Up to so many days are cut into panes of an hour, longer ranges into days: a policy costs panes and cells."""
MOST_REFITS = 160
"""By age: a long range is refitted less often than every day, which is what takes the time."""
MOST_UNIQUE_VALUES, LEAST_ROWS_A_VALUE = 100, 3
"""A column of more values, with fewer rows a value, makes no groups."""
_VALUES_SHOWN, _VALUE_SHOWN = 5, 40
"""Values of a column of labels that are shown, and characters of each."""
CROSSED = 3
"""Up to so many attributes, every pair of them is a family too."""
_UNITS_MS: Mapping[TimeUnit, float] = {"s": 1e3, "ms": 1.0, "us": 1e-3}


@dataclass(frozen=True, slots=True)
class TrialColumns:
    """Columns of one table of predictions; a name may be a path into a struct."""

    score: str
    label: str
    time: str
    groups: Sequence[str]
    id: str | None = None
    """None: every row is a prediction of its own."""
    label_time: str | None = None
    """None: labels are dated at their scores' horizon."""
    time_unit: TimeUnit | None = None
    """What numbers in columns of times count; None: they hold timestamps or ISO 8601."""
    scale: ScoreScale = "probability"
    zone: str = "UTC"
    """Of times without one."""

    def of_scores(self, engine: Engine, table: Table) -> ScoreColumns:
        """Raises HistoryError where a column is missing, or a time is a number without a unit."""
        names = _attribute_names(self.groups)
        return ScoreColumns(
            score=self.score,
            time=_time(engine, table, self.time, self.time_unit),
            id=self.id,
            groups=dict(zip(names, self.groups, strict=True)),
            scale=self.scale,
            zone=self.zone,
        )

    def of_labels(self, engine: Engine, table: Table) -> LabelColumns:
        """Raises as `of_scores`."""
        time = None if self.label_time is None else _time(engine, table, self.label_time, self.time_unit)
        return LabelColumns(self.label, time, zone=self.zone)

    def check_groups(self, engine: Engine, table: Table) -> None:
        """Raises HistoryError where a column has nearly as many values as rows, as an id has: it makes no groups."""
        if not self.groups:
            return
        figures = ["count(*) AS n"]
        figures += [f"approx_count_distinct({table.field(one).sql}) AS k{i}" for i, one in enumerate(self.groups)]
        names = ["n", *(f"k{i}" for i in range(len(self.groups)))]
        statement = Statement(f"SELECT {', '.join(figures)} FROM {table.sql}", dict.fromkeys(names, "integer"))
        ((n, *values),) = engine.rows(statement, table.source)
        for column, k in zip(self.groups, values, strict=True):
            if k > MOST_UNIQUE_VALUES and n < LEAST_ROWS_A_VALUE * k:
                raise HistoryError(
                    f"{table.source}: the column {column!r} has about {k:,} values in {n:,} rows, so next to every row"
                    " would be a group of its own; leave it out of --group (where it names predictions, it is the --id)"
                )

    def shown_labels(self, engine: Engine, table: Table) -> str:
        """The label column's most frequent values, for an error: `'no' 10,020, 'yes' 9,980`."""
        value = f"left(CAST({table.field(self.label).sql} AS VARCHAR), {_VALUE_SHOWN})"
        sql = f"SELECT {value} AS v, count(*) AS n FROM {table.sql} GROUP BY 1 ORDER BY n DESC, v LIMIT {_VALUES_SHOWN}"
        found = engine.rows(Statement(sql, {"v": "text", "n": "integer"}), table.source)
        return ", ".join(f"{'null' if v is None else repr(v)} {n:,}" for v, n in found)

    def config(self, span_ms: tuple[int, int], horizon_ms: int) -> Config:
        """The defaults, with these attributes and panes to fit the range of event times."""
        names = _attribute_names(self.groups)
        hourly = span_ms[1] - span_ms[0] < HOURLY_DAYS * DAY_MS
        age_ms = max(1, -(-(span_ms[1] - span_ms[0]) // (MOST_REFITS * DAY_MS))) * DAY_MS
        crossed = [list(pair) for pair in combinations(names, 2)] if len(names) <= CROSSED else []
        return Config.model_validate(
            {
                "model": {"name": KEY.model, "version": KEY.version},
                "scores": {
                    "score": self.score,
                    "attributes": dict(zip(names, self.groups, strict=True)),
                    "intersections": crossed,
                },
                "windows": {"horizon": duration_text(horizon_ms), "pane": "1h" if hourly else "1d"},
                "refit": {"max_age": duration_text(age_ms)},
            }
        )


def _attribute_names(columns: Sequence[str]) -> list[str]:
    """Names that attributes may have, made of those of the columns. Raises HistoryError where two are one."""
    names = [re.sub(r"[^A-Za-z0-9_.-]", "_", column)[:64] for column in columns]
    names = [name if re.match(r"[A-Za-z_]", name) else f"_{name}"[:64] for name in names]
    for name in names:
        if names.count(name) > 1:
            raise HistoryError(f"the column {name!r} is given twice as a group; give each once")
    return names


def _time(engine: Engine, table: Table, column: str, unit: TimeUnit | None) -> TimeColumn:
    field = table.field(column)
    if field.kind in ("integer", "float", "decimal"):
        number = f"CAST({field.sql} AS DOUBLE)"
    elif field.kind in ("text", "cell"):  # of numbers or of ISO 8601, which is never a number
        number = number_of_text(field)
    else:
        return TimeColumn(column, unit or "iso8601")
    sql = f"SELECT min({number}) AS low, max({number}) AS high FROM {table.sql}"
    ((low, high),) = engine.rows(Statement(sql, {"low": "double", "high": "double"}), table.source)
    if low is None or high is None:
        if field.kind in ("text", "cell"):
            return TimeColumn(column, "iso8601")
        raise HistoryError(f"{table.source}: column {column!r} holds no times")
    if unit is not None:
        return TimeColumn(column, unit)
    fitting = [u for u in _UNITS_MS if _fits(low, u) and _fits(high, u)]
    hint = f": as {fitting[0]} they are times of the years 2000 to 2099" if fitting else ""
    raise HistoryError(
        f"{table.source}: column {column!r} holds numbers ({low:.15g} to {high:.15g}){hint}; say what they count, as"
        f" --time-unit {fitting[0] if fitting else 's, ms or us'}"
    )


def _fits(number: float, unit: TimeUnit) -> bool:
    return MIN_EVENT_TIME_MS <= number * _UNITS_MS[unit] < MAX_EVENT_TIME_MS
