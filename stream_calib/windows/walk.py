"""Walking a pane over all shards, only reading: rows to winners, winners to cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.grid import locate
from stream_calib.errors import StateError
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.served_sums import InverseRates, Served, ServedSums
from stream_calib.windows.shard_store import (
    LABEL_CLASSES,
    NEGATIVE_CODE,
    POSITIVE_CODE,
    UNMATCHED_KINDS,
    Entry,
    Inputs,
    ReadGuard,
    ScoreRows,
    ShardStore,
)


@dataclass(frozen=True, slots=True)
class MaturedPane:
    """What maturing a pane gives, before it is committed."""

    cells: MaturedCells
    counts: dict[str, int]
    """COUNTER_KINDS, winners, and label_never_scored: with label_leaked and label_beyond_horizon (both as far as is
    known) the labels that are not matched."""
    served: dict[str, Served]
    """By snapshot version ("" = identity)."""
    entries: dict[str, Entry]
    """Input key -> the earliest place over the shards where its clock first reached the pane."""
    cut: dict[str, dict[str, int]] = field(default_factory=dict)
    """Excluded input key -> shard -> next position."""
    labels_at_cut: dict[str, dict[str, int]] = field(default_factory=dict)
    """Where there is a cut: shard -> its LABEL_CLASSES, for what comes later to be told from them."""


def winners(rows: ScoreRows) -> ScoreRows:
    """One row an id (all rows are of one pane): the smallest (event time, raw score), sorted by fingerprint.

    Among equal ones the smallest (signature hash, unit bucket, version, served probability): any rule does, as long as
    it does not depend on the order of arrival.
    """
    fingerprint = rows.fingerprint
    if not (fingerprint[1:] >= fingerprint[:-1]).all():
        rows = rows.take(np.argsort(fingerprint))
        fingerprint = rows.fingerprint
    equal = fingerprint[1:] == fingerprint[:-1]
    if not equal.any():
        return rows
    several = np.concatenate([[False], equal]) | np.concatenate([equal, [False]])
    chosen = ~several
    chosen[_smallest(rows, np.flatnonzero(several))] = True
    return rows.take(np.flatnonzero(chosen))


def _smallest(rows: ScoreRows, index: NDArray[np.intp]) -> NDArray[np.intp]:
    """Those of the indexes whose row wins among the rows of its id."""
    some = rows.take(index)
    rank = np.argsort(np.argsort(np.array(rows.snapshots)))
    ties = (some.served, rank[some.snapshot_index], some.unit_bucket, some.signature)
    order = np.lexsort((*ties, some.score, some.event_time_ms, some.fingerprint))
    fingerprint = some.fingerprint[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = fingerprint[1:] != fingerprint[:-1]
    return index[order[first]]


def read_scored(shards: ShardStore, pane: int, inputs: Inputs) -> ScoredCells | None:
    """Scored cells of a closed pane; None while a shard says "not yet". Raises PaneGoneError."""
    guard, parts = ReadGuard(inputs, matured=False), []
    for shard in range(shards.count):
        read = shards.read_rows(shard, pane, guard)
        if read is None:
            return None
        if len(read.rows):
            rows = winners(read.rows)
            parts.append(ScoredCells.count(rows.signature, locate(rows.score)[0]))
    return ScoredCells.merge(parts)


def read_matured(
    shards: ShardStore,
    pane: int,
    inputs: Inputs,
    excluded: Mapping[str, int],
    inverse_rates: InverseRates | None = None,
) -> MaturedPane | None:
    """Matured cells and counters; None while a shard says "not yet" or a cut moved. Raises PaneGoneError.

    `inverse_rates`: of signatures that end with a keep rate; None: nothing was thinned.
    """
    guard = ReadGuard(inputs, matured=True, excluded=excluded)
    parts, counts, served = [], Counter[str](), ServedSums(inverse_rates)
    entries: dict[str, Entry] = {}
    cuts: dict[str, dict[str, int]] = {input_key: {} for input_key in excluded}
    at_cut: dict[str, dict[str, int]] = {}
    for shard in range(shards.count):
        read = shards.read_rows(shard, pane, guard)
        counters = shards.read_counters(shard, pane, guard)
        if read is None or counters is None or read.cut != counters.cut:
            return None
        _refuse_lost_rows(shard, pane, len(read.rows), counters.counts.get("accepted", 0))
        for input_key, position in read.cut.items():
            cuts[input_key][str(shard)] = position
        counts.update(counters.counts)
        if read.cut:
            at_cut[str(shard)] = {kind: n for kind, n in counters.counts.items() if kind in LABEL_CLASSES}
        for input_key, entry in counters.entries.items():
            known = entries.get(input_key)
            entries[input_key] = entry if known is None or entry.position < known.position else known
        if not len(read.rows):
            continue
        rows = winners(read.rows)
        labels = shards.read_labels(shard, pane, guard, rows.fingerprint, rows.event_time_ms)
        if labels is None or labels[1] != read.cut:
            return None
        label = _labels(labels[0], shards.settings.negative_at_horizon)
        parts.append(MaturedCells.count(rows.unit_bucket, rows.signature, locate(rows.score)[0], label))
        counts["winners"] += len(rows)
        served.add(rows, label)
    return MaturedPane(MaturedCells.merge(parts), _diagnosed(counts), served.by_version(), entries, cuts, at_cut)


def _diagnosed(counts: Counter[str]) -> dict[str, int]:
    """The counters with the labels that join no winner in exactly one of UNMATCHED_KINDS and label_never_scored.

    What a shard knows of an unmatched label is what it knew of the id when the label or a score came: scores of dropped
    panes are forgotten. So a label may be known as of two kinds, and then the first one counts.
    """
    found = {kind: n for kind, n in counts.items() if kind not in UNMATCHED_KINDS}
    unmatched = counts["labels"] - counts["matched"]
    for kind in UNMATCHED_KINDS:
        n = min(max(counts[kind], 0), unmatched)
        found |= {kind: n} if n else {}
        unmatched -= n
    return found | ({"label_never_scored": unmatched} if unmatched else {})


def _refuse_lost_rows(shard: int, pane: int, rows: int, accepted: int) -> None:
    """Rows and their counter are written together, so where they differ, the server has dropped one of the two."""
    if rows != accepted:
        raise StateError(
            f"pane {pane}: shard {shard} holds {rows} of the {accepted} scores that it has counted. The server has"
            " dropped keys: see that its maxmemory-policy is noeviction, and put a backup of the state back"
        )


def _labels(code: NDArray[np.uint8], negative_at_horizon: bool) -> NDArray[np.int8]:
    """(n,) 0 or 1, -1 where the label was withdrawn, or where there is none and that is not read as negative."""
    label = np.full(len(code), -1, dtype=np.int8)
    if negative_at_horizon:
        label[code == 0] = 0
    label[code == NEGATIVE_CODE] = 0
    label[code == POSITIVE_CODE] = 1
    return label
