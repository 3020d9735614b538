"""The one query that makes cells of rows, in DuckDB's dialect.

Ids that are there once on each side, nearly all as a rule, are joined and counted as they stream by; only those that
are there several times are sorted: the smallest (time, score) of an id and pane wins, and takes the newest label that
is later than the score and not beyond its horizon (of equally new ones withdrawn before negative before positive).

A row of the result is a winner's cell with its label, as one number (`CellKeys`).
"""

from __future__ import annotations

from dataclasses import dataclass

from stream_calib.backtest.tables.cells_of_rows import MATCHED, REPEATED, CellKeys
from stream_calib.backtest.tables.columns import LabelColumns, ScoreColumns, Table
from stream_calib.backtest.tables.engine import ResultType, Statement
from stream_calib.backtest.tables.fields import Selected
from stream_calib.backtest.tables.grid import BIN_SQL, estimate_sql

GRID_TABLE = "stream_calib_grid"
SIGNATURE_TABLE = "stream_calib_signatures"
UNIT_TABLE = "stream_calib_units"
BUCKET_TABLE = "stream_calib_buckets"

BUCKET_DIGITS = 3
"""Hexadecimal digits of a unit's MD5 that its bucket is taken from: 204 or 205 of 4,096 values each."""


@dataclass(frozen=True, slots=True)
class Query:
    """SQL over the tables of scores and labels (None: the labels are columns of the scores)."""

    scores: Table
    score_columns: ScoreColumns
    score_fields: Selected
    labels: Table | None
    label_columns: LabelColumns
    label_fields: Selected
    pane_ms: int
    horizon_ms: int

    @property
    def has_id(self) -> bool:
        return self.score_columns.id is not None

    def span(self) -> Statement:
        """`first` and `last` event time of the rows that count."""
        return Statement(f"SELECT min(t) AS first, max(t) AS last FROM {self._scores()}", _integers("first", "last"))

    def survey(self) -> Statement:
        """By reason of refusal (null: none) and attributes, in this order: rows `n`, `first` and `last` event time;
        where labels are in the same table, behind `refusal` also by `label_refusal`, and at the end `labels` and the
        `newest` label time."""
        keys: dict[str, ResultType] = {"refusal": "text"}
        select = [f"{self.score_fields.refusal} AS refusal"]
        figures = ["count(*) AS n", "min(t) AS first", "max(t) AS last"]
        types = _integers("n", "first", "last")
        if self.labels is None:
            keys["label_refusal"] = "text"
            select.append(f"{self.label_fields.refusal} AS label_refusal")
            time = "t" if self.label_columns.time is None else "lt"
            figures.append("CAST(sum(CASE WHEN code > 0 THEN 1 ELSE 0 END) AS BIGINT) AS labels")
            figures.append(f"max(CASE WHEN code > 0 THEN {time} END) AS newest")
            types |= _integers("labels", "newest")
        attributes: dict[str, ResultType] = dict.fromkeys(self._attributes(), "text")
        if self.score_columns.keep_rate is not None:
            attributes["k"] = "double"
        listed = ", ".join([*select, *attributes, *figures])
        by = ", ".join([*keys, *attributes])
        return Statement(f"SELECT {listed} FROM {self._raw_scores()} GROUP BY {by}", keys | attributes | types)

    def survey_labels(self) -> Statement:
        """Of a table of labels: by reason of refusal, rows `n` and the `newest` label time."""
        types: dict[str, ResultType] = {"refusal": "text"}
        return Statement(
            f"SELECT {self.label_fields.refusal} AS refusal, count(*) AS n, max(lt) AS newest"
            f" FROM {self._raw_labels()} GROUP BY refusal",
            types | _integers("n", "newest"),
        )

    def units(self) -> Statement:
        """The distinct units."""
        return Statement(f"SELECT DISTINCT {self._unit()} AS unit FROM {self._scores()}", {"unit": "text"})

    def cells(self, keys: CellKeys, *, exact: bool) -> Statement:
        """The `key` (see `CellKeys`) of every winner, and the key MATCHED for every label that joins a winner, of an id
        that is there several times."""
        parts = [f"SELECT {keys.sql('state')} AS key FROM once"]
        if self.has_id:
            parts.append(f"SELECT {keys.sql(f'state + {REPEATED}')} AS key FROM repeatedly")
            parts.append(
                f"SELECT {MATCHED} AS key FROM versions AS v WHERE EXISTS"
                f" (SELECT 1 FROM firsts AS f WHERE f.id = v.id AND {self._joins('f', 'v')})"
            )
        return Statement(f"WITH {self._with(exact=exact)} {' UNION ALL '.join(parts)}", _integers("key"))

    def _with(self, *, exact: bool) -> str:
        parts = [f"placed AS ({self._placed(exact=exact)})"]
        if self.labels is not None:
            parts.insert(0, f"labels AS (SELECT * FROM {self._raw_labels()} WHERE {self.label_fields.good})")
        if not self.has_id:
            return ", ".join([*parts, f"once AS (SELECT *, {self._own_state()} AS state FROM placed)"])
        sides = ["placed"] if self.labels is None else ["placed", "labels"]
        ids = " UNION ALL ".join(f"SELECT id FROM {side} GROUP BY id HAVING count(*) > 1" for side in sides)
        several, of_label = (f"EXISTS (SELECT 1 FROM several AS r WHERE r.id = {side}.id)" for side in "pl")
        parts.append(f"several AS ({ids})")
        if self.labels is None:
            parts.append(f"once AS (SELECT *, {self._own_state()} AS state FROM placed AS p WHERE NOT {several})")
            versions = f"SELECT id, {self._own_time()} AS lt, code FROM placed AS p WHERE {several} AND code > 0"
        else:
            state = f"CASE WHEN {self._joins('p', 'l')} THEN l.code ELSE 0 END"
            parts.append(
                f"once AS (SELECT p.*, {state} AS state FROM placed AS p LEFT JOIN labels AS l ON l.id = p.id"
                f" WHERE NOT {several})"
            )
            versions = f"SELECT id, lt, code FROM labels AS l WHERE {of_label}"
        order = "t, s, signature, bucket"
        parts += [
            f"versions AS ({versions})",
            f"ranked AS (SELECT *, row_number() OVER (PARTITION BY id, pane ORDER BY {order}) AS place FROM placed AS p"
            f" WHERE {several})",
            "firsts AS (SELECT * FROM ranked WHERE place = 1)",
            # The newest, and of equally new ones the smallest code.
            f"best AS (SELECT f.id, f.pane, max(v.lt * 4 + 3 - v.code) AS best FROM firsts AS f JOIN versions AS v"
            f" ON v.id = f.id WHERE {self._joins('f', 'v')} GROUP BY f.id, f.pane)",
            "repeatedly AS (SELECT f.*, coalesce(3 - b.best % 4, 0) AS state FROM firsts AS f LEFT JOIN best AS b"
            " ON b.id = f.id AND b.pane = f.pane)",
        ]
        return ", ".join(parts)

    def _placed(self, *, exact: bool) -> str:
        """Rows with `pane`, `signature` (place among the signatures, by hash), `bin`, `bucket` and the score `s` that
        they are ordered by."""
        names = self._attributes()
        on = [f"d.{name} = c.{name}" for name in names]
        if self.score_columns.keep_rate is not None:
            on.append("d.k = c.k")
        label = "" if self.labels is not None else ", code" + (", lt" if self.label_columns.time is not None else "")
        score = "x" if self.score_columns.scale == "logit" else "least(greatest(x, 0.0), 1.0)"
        if self.score_columns.scale == "percent":
            score = "least(greatest(x / 100, 0.0), 1.0)"
        units, unit = (UNIT_TABLE, "c.unit") if exact else (BUCKET_TABLE, "c.digits")
        ids = "c.id, " if self.has_id else ""
        signature_join = f" JOIN {SIGNATURE_TABLE} AS d ON {' AND '.join(on)}" if on else ""
        signature = "d.signature" if on else "0"
        place = estimate_sql(self.score_columns.scale)
        inner = f"SELECT *, {self._unit()} AS unit, {place} AS place FROM {self._scores()}"
        if not exact:
            inner = f"SELECT *, substr(md5(unit), 1, {BUCKET_DIGITS}) AS digits FROM ({inner}) AS unhashed"
        return (
            f"SELECT {ids}t, {score} AS s, t // {self.pane_ms} AS pane, {signature} AS signature,"
            f" {BIN_SQL} AS bin, un.bucket AS bucket{label}"
            f" FROM ({inner}) AS c JOIN {GRID_TABLE} AS g ON g.estimate = c.place{signature_join}"
            f" JOIN {units} AS un ON un.unit = {unit}"
        )

    def _own_time(self) -> str:
        return "lt" if self.label_columns.time is not None else f"t + {self.horizon_ms}"

    def _own_state(self) -> str:
        """Of a winner's own row."""
        if self.label_columns.time is None:
            return "code"
        return f"CASE WHEN code > 0 AND t < lt AND lt <= t + {self.horizon_ms} THEN code ELSE 0 END"

    def _joins(self, score: str, label: str) -> str:
        return f"{score}.t < {label}.lt AND {label}.lt <= {score}.t + {self.horizon_ms}"

    def _attributes(self) -> list[str]:
        return [f"g{i}" for i in range(len(self.score_columns.groups))]

    def _unit(self) -> str:
        """Without a unit and an id, what the row says stands for it."""
        fallback = "id"
        if not self.has_id:
            said = ["CAST(t AS VARCHAR)", "CAST(x AS VARCHAR)", *self._attributes()]
            fallback = " || ' ' || ".join(said)
        return fallback if self.score_columns.unit is None else f"coalesce(u, {fallback})"

    def _scores(self) -> str:
        """Those that count. A label that does not count in its row is none."""
        if self.labels is not None:
            return f"(SELECT * FROM {self._raw_scores()} WHERE {self.score_fields.good}) AS good"
        label = f"CASE WHEN {self.label_fields.good} THEN code ELSE 0 END AS code"
        names = [name for name in self._names() if name != "code"]
        return f"(SELECT {', '.join(names)}, {label} FROM {self._raw_scores()} WHERE {self.score_fields.good}) AS good"

    def _names(self) -> list[str]:
        """Of the columns of rows."""
        columns, names = self.score_columns, ["x", "t", *self._attributes()]
        names += ["id"] if self.has_id else []
        names += ["u"] if columns.unit is not None else []
        names += ["k"] if columns.keep_rate is not None else []
        if self.labels is None:
            names += ["code", *(["lt"] if self.label_columns.time is not None else [])]
        return names

    def _raw_scores(self) -> str:
        select = self.score_fields.select
        if self.labels is None:
            select += ", " + self.label_fields.select
        return f"(SELECT {select} FROM {self.scores.sql} AS source) AS raw"

    def _raw_labels(self) -> str:
        assert self.labels is not None
        return f"(SELECT {self.label_fields.select} FROM {self.labels.sql} AS source) AS raw"


def _integers(*names: str) -> dict[str, ResultType]:
    return dict.fromkeys(names, "integer")
