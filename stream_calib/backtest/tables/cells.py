"""Scores and labels in tables to cells, inside an engine: only cells and the distinct attribute values reach Python.

The cells equal those of an exact replay in which no record is late. Unit buckets are had in two forms: `engine`, from
the MD5 of the unit's text, and `exact`, the keyed BLAKE2b of the live service, for which every distinct unit goes
through Python.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.tables.cells_of_rows import CellKeys, packed_panes
from stream_calib.backtest.tables.columns import LabelColumns, ScoreColumns, Table
from stream_calib.backtest.tables.engine import Engine
from stream_calib.backtest.tables.fields import label_fields, score_fields
from stream_calib.backtest.tables.grid import grid_table
from stream_calib.backtest.tables.sql import (
    BUCKET_DIGITS,
    BUCKET_TABLE,
    GRID_TABLE,
    SIGNATURE_TABLE,
    UNIT_TABLE,
    Query,
)
from stream_calib.backtest.tables.values import attribute_value
from stream_calib.config import Config
from stream_calib.config_identity import semantic_hash
from stream_calib.errors import HistoryError
from stream_calib.events.contracts import MISSING_VALUE, ModelKey
from stream_calib.events.identity import UNIT_BUCKETS, fingerprints, signature_hash, unit_buckets
from stream_calib.events.keep_rates import rate_text

UnitBuckets: TypeAlias = Literal["engine", "exact"]

_MOST_PANES = 200_000
_LABELS = "labels"


@dataclass(slots=True)
class _Survey:
    """What a first pass over the tables finds."""

    counts: Counter[str] = field(default_factory=Counter)
    tuples: list[tuple[Any, ...]] = field(default_factory=list)
    """Distinct attribute texts, and keep rate where there is one, of the rows that count."""
    first_ms: int | None = None
    last_ms: int | None = None
    newest_label_ms: int | None = None


def cells_of_tables(
    engine: Engine,
    scores: Table,
    score_columns: ScoreColumns,
    labels: Table | None,
    label_columns: LabelColumns,
    config: Config,
    key: ModelKey,
    *,
    buckets: UnitBuckets = "engine",
) -> CellHistory:
    """The history of the model in the tables; `labels` None: they are columns of the scores. It is cold, and its last
    panes have no matured cells where labels may still come: up to a horizon before the newest label.

    Counts: `rows`, `accepted` (winners and duplicates), `duplicates`, `winners`, `labels`, `matched`, `unmatched`,
    `capped`, `attributes_dropped`, and `scores_rejected_...`, `labels_rejected_...` by reason. Raises HistoryError
    where a column is missing or of the wrong type, or nothing is left to count.
    """
    own = labels is None
    if (own and label_columns.id is not None) or (not own and (label_columns.id is None or score_columns.id is None)):
        raise HistoryError(
            "scores and labels in two tables are joined by their ids, and those in one need none for labels: name the"
            " columns of ids accordingly"
        )
    if not own and label_columns.time is None:
        raise HistoryError("a table of labels needs the times of its labels; name their column")
    if list(score_columns.groups) != list(config.scores.attributes):
        raise HistoryError(
            f"the groups of the table are {', '.join(score_columns.groups) or 'none'}, and scores.attributes"
            f" {', '.join(config.scores.attributes) or 'none'}: a signature has the values of these, in their order"
        )
    if config.scores.sample_rate != 1:
        raise HistoryError(
            "scores.sample_rate: a table is counted whole, by an engine that has the room; leave it at 1 for this run"
        )
    source = scores.source if labels is None else f"{scores.source}, {labels.source}"
    query = Query(
        scores,
        score_columns,
        score_fields(scores, score_columns, key),
        labels,
        label_columns,
        label_fields(scores if labels is None else labels, label_columns, key, own=own),
        config.windows.pane_ms,
        config.windows.horizon_ms,
    )
    found = _survey(engine, query, source)
    if found.first_ms is None or found.last_ms is None:
        raise HistoryError(_nothing_counts(engine, query, source))
    pane_ms = query.pane_ms
    first, last = found.first_ms // pane_ms, found.last_ms // pane_ms
    if last - first >= _MOST_PANES:
        raise HistoryError(
            f"{source}: times from {_day(found.first_ms)} to {_day(found.last_ms)} are {last - first + 1:,} panes, and"
            f" {_MOST_PANES:,} can be replayed: is the unit of the times right? Leave outliers out in a query"
        )
    dictionary = _put_tables(engine, query, found, config)
    _put_units(engine, query, source, exact=buckets == "exact")
    keys = CellKeys.of(first, len(dictionary))
    counted = engine.counts(query.cells(keys, exact=buckets == "exact"), source)
    winners = keys.winners(counted)
    final = first - 1 if found.newest_label_ms is None else min(_last_final(found.newest_label_ms, query), last)
    packed = packed_panes(winners, keys, range(first, last + 1), final, dictionary, config)
    counts = found.counts
    counts["winners"] = int(winners.n.sum())
    counts["duplicates"] = counts["accepted"] - counts["winners"]
    counts["matched"] = keys.matched(counted)
    counts["unmatched"] = counts["labels"] - counts["matched"]
    counts["capped"] = packed.capped
    kept = {name: n for name, n in counts.items() if n}
    return CellHistory(
        key, semantic_hash(config), pane_ms, first, packed.panes, packed.signatures, "cold", f"table {source}", kept
    )


def span_of(engine: Engine, table: Table, scores: ScoreColumns, labels: LabelColumns, key: ModelKey) -> tuple[int, int]:
    """First and last event time, in ms, of the rows that count in a table of scores with their labels. Raises
    HistoryError where none counts."""
    query = Query(
        table, scores, score_fields(table, scores, key), None, labels, label_fields(table, labels, key, own=True), 1, 1
    )
    rows = engine.rows(query.span(), table.source)
    if rows[0][0] is None:
        raise HistoryError(_nothing_counts(engine, query, table.source))
    return int(rows[0][0]), int(rows[0][1])


def _nothing_counts(engine: Engine, query: Query, source: str) -> str:
    rejected = [f"{name} {n:,}" for name, n in sorted(_survey(engine, query, source).counts.items()) if name != "rows"]
    return f"{source}: no row can be counted: {', '.join(rejected) or 'there is none'}"


def _survey(engine: Engine, query: Query, source: str) -> _Survey:
    found, own = _Survey(), query.labels is None
    statement = query.survey()
    names = list(statement.columns)
    width = len(query.score_columns.groups) + (query.score_columns.keep_rate is not None)
    at = names.index("n")
    distinct: dict[tuple[Any, ...], None] = {}
    for row in engine.rows(statement, source):
        facts = dict(zip(names, row, strict=True))
        n = int(facts["n"])
        found.counts["rows"] += n
        if facts["refusal"] is not None:
            found.counts[_rejected("scores", facts["refusal"])] += n
            continue
        found.counts["accepted"] += n
        distinct[tuple(row[at - width : at])] = None
        found.first_ms = _least(found.first_ms, facts["first"])
        found.last_ms = _largest(found.last_ms, facts["last"])
        if own:
            if facts["label_refusal"] is not None:
                found.counts[_rejected("labels", facts["label_refusal"])] += n
            else:
                found.counts["labels"] += int(facts["labels"])
                found.newest_label_ms = _largest(found.newest_label_ms, facts["newest"])
    found.tuples = list(distinct)
    if own:
        return found
    statement = query.survey_labels()
    for row in engine.rows(statement, source):
        facts = dict(zip(statement.columns, row, strict=True))
        if facts["refusal"] is not None:
            found.counts[_rejected("labels", facts["refusal"])] += int(facts["n"])
        else:
            found.counts["labels"] += int(facts["n"])
            found.newest_label_ms = _largest(found.newest_label_ms, facts["newest"])
    return found


def _rejected(side: str, reason: str) -> str:
    return f"{side}_{reason}" if reason == "other_model" else f"{side}_rejected_{reason}"


def _least(known: int | None, found: Any) -> int | None:
    return known if found is None else int(found) if known is None else min(known, int(found))


def _largest(known: int | None, found: Any) -> int | None:
    return known if found is None else int(found) if known is None else max(known, int(found))


def _last_final(newest_label_ms: int, query: Query) -> int:
    """The last pane whose labels are final. Labels without a time of their own are as old as their scores are: then it
    is the pane of the newest score that has one."""
    if query.label_columns.time is None:
        return newest_label_ms // query.pane_ms
    return (newest_label_ms - query.horizon_ms) // query.pane_ms - 1


def _put_tables(engine: Engine, query: Query, found: _Survey, config: Config) -> dict[int, tuple[str, ...]]:
    """Grid and signatures as tables; the signatures by hash, in the order of their hashes."""
    grid = grid_table(query.score_columns.scale)
    engine.put(GRID_TABLE, {"estimate": grid.estimate, "low": grid.low, "high": grid.high})
    columns, limit = query.score_columns, config.scores.max_value_bytes
    fields = [query.scores.field(column) for column in columns.groups.values()]
    width = len(fields)
    hashes, dictionary = [], {}
    for row in found.tuples:
        texts = [attribute_value(f, text, limit) for f, text in zip(fields, row[:width], strict=True)]
        values = tuple(MISSING_VALUE if text is None else text for text in texts)
        if columns.keep_rate is not None:
            values = (*values, rate_text(row[width]))
        hashes.append(signature_hash(values))
        dictionary[hashes[-1]] = values
    ordered = dict(sorted(dictionary.items()))
    place = {signature: i for i, signature in enumerate(ordered)}
    if width or columns.keep_rate is not None:
        given: dict[str, Any] = {f"g{i}": [str(row[i]) for row in found.tuples] for i in range(width)}
        if columns.keep_rate is not None:
            given["k"] = np.array([row[width] for row in found.tuples], dtype=np.float64)
        given["signature"] = np.array([place[h] for h in hashes], dtype=np.int64)
        engine.put(SIGNATURE_TABLE, given)
    return ordered


def _put_units(engine: Engine, query: Query, source: str, *, exact: bool) -> None:
    """The bucket of every unit, or of every beginning of an MD5."""
    if not exact:
        size = 16**BUCKET_DIGITS
        digits = [format(number, f"0{BUCKET_DIGITS}x") for number in range(size)]
        engine.put(BUCKET_TABLE, {"unit": digits, "bucket": np.arange(size) * UNIT_BUCKETS // size})
        return
    units = engine.texts(query.units(), source)
    engine.put(UNIT_TABLE, {"unit": units, "bucket": unit_buckets(fingerprints(units)).astype(np.int64)})


def _day(ms: int) -> str:
    return str(np.datetime64(ms, "ms").astype("datetime64[D]"))
