"""Tables of scores and labels: which column holds which field of an event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Literal, NamedTuple, TypeAlias

from stream_calib.config import Config
from stream_calib.config_models import ScoreScale
from stream_calib.errors import HistoryError
from stream_calib.events.contracts import ModelKey
from stream_calib.events.event_times import TimeUnit

ColumnKind: TypeAlias = Literal[
    "text", "cell", "integer", "float", "decimal", "boolean", "timestamp", "zoned", "date", "json", "nested", "other"
]
"""What a column holds: `cell` is text of a CSV file, which has no types; `json` a value of NDJSON with the type that it
has in each record; `timestamp` has no zone, `zoned` has one; `nested` are structs and lists."""

_MOST_COLUMNS_SHOWN = 30


class TimeColumn(NamedTuple):
    """Where a time is, and what a number in it counts; a column of timestamps has no unit."""

    column: str
    unit: TimeUnit = "iso8601"


@dataclass(frozen=True, slots=True)
class ScoreColumns:
    """Which columns hold the fields of a score. A name may be a dotted path into a struct or an object; a column whose
    name is the whole path comes first."""

    score: str
    time: TimeColumn
    id: str | None = None
    """None: every row is a prediction of its own."""
    unit: str | None = None
    """None: the id."""
    keep_rate: str | None = None
    model: str | None = None
    """Column of the model's name, where the table holds several; rows of others are left out and counted."""
    version: str | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    """Attribute -> column, in the order of a signature."""
    scale: ScoreScale = "probability"
    zone: str = "UTC"
    """Of times without one."""

    @classmethod
    def of(cls, config: Config, key: ModelKey) -> ScoreColumns:
        """The paths of [scores], of this model. Raises HistoryError where the time is that of the log, or no score of
        the configuration is one of this model."""
        scores = config.scores
        if scores.time.path is None:
            raise HistoryError(
                "scores.time.path is not set: the times of scores are those of the log, which a table does not have;"
                " name the column"
            )
        for model in config.score_models():
            if model.name in (None, key.model) and model.version in (None, key.version):
                return cls(
                    score=model.score_path,
                    time=TimeColumn(scores.time.path, scores.time.unit),
                    id=scores.id,
                    unit=scores.unit,
                    keep_rate=scores.keep_rate,
                    model=model.name_path,
                    version=model.version_path,
                    groups=dict(scores.attributes),
                    scale=model.scale,
                )
        raise HistoryError(f"the configuration has no score of {key}; there are: {_models(config)}")


@dataclass(frozen=True, slots=True)
class LabelColumns:
    """Which columns hold the fields of a label; names as in `ScoreColumns`."""

    label: str
    time: TimeColumn | None
    """None: a label is dated at its score's horizon; only where scores and labels are one table."""
    id: str | None = None
    """None: the label is that of the score in its row."""
    model: str | None = None
    """Column of the name of the model that a label is for."""
    granularity_ms: int = 1
    """What a label time stands for; it counts as the last millisecond of that."""
    zone: str = "UTC"

    @classmethod
    def of(cls, config: Config) -> LabelColumns:
        """The paths of [labels]. Raises HistoryError where the time is that of the log."""
        labels = config.labels
        if labels.time.path is None:
            raise HistoryError(
                "labels.time.path is not set: the times of labels are those of the log, which a table does not have;"
                " name the column"
            )
        return cls(
            label=labels.label,
            time=TimeColumn(labels.time.path, labels.time.unit),
            id=labels.id,
            model=labels.model,
            granularity_ms=labels.time_granularity_ms,
        )


def _models(config: Config) -> str:
    return ", ".join(f"{model.name or '(any)'}/{model.version or '(any)'}" for model in config.score_models())


class Field(NamedTuple):
    """A column, or a member of one."""

    sql: str
    kind: ColumnKind
    type: str
    """As the engine calls it."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows that SQL can read."""

    sql: str
    """What stands behind FROM."""
    source: str
    """In words for people: the files, or the query."""
    fields: Mapping[str, Field]
    """By name, in the table's order; members of structs by their dotted paths."""

    def field(self, path: str) -> Field:
        """The column of that whole name, or else the member at the path. Raises HistoryError where there is none, with
        the nearest name."""
        if path in self.fields:
            return self.fields[path]
        first, _, rest = path.partition(".")
        if rest and first in self.fields and self.fields[first].kind == "json":
            member = "$" + "".join(f'."{part}"' for part in rest.split("."))
            return Field(f"json_extract({self.fields[first].sql}, {text_literal(member)})", "json", "JSON")
        raise HistoryError(f"{self.source}: there is no column {path!r}. {self._nearest(path)}")

    def _nearest(self, path: str) -> str:
        names = list(self.fields)
        lowered = {name.lower(): name for name in names}
        near = [lowered[name] for name in get_close_matches(path.lower(), lowered, n=1)]
        shown = ", ".join(names[:_MOST_COLUMNS_SHOWN]) + (", ..." if len(names) > _MOST_COLUMNS_SHOWN else "")
        return (f"Is {near[0]!r} meant? " if near else "") + f"The columns are: {shown or '(none)'}"


def text_literal(text: str) -> str:
    """The text as it stands in SQL."""
    return "'" + text.replace("'", "''") + "'"


def name_literal(name: str) -> str:
    """The name of a column as it stands in SQL."""
    return '"' + name.replace('"', '""') + '"'
