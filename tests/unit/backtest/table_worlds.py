"""Scores and labels of a few ids, as tables and as rows of the join in memory: what both make of them must be equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stream_calib.backtest.history import PaneBlobs
from stream_calib.config import Config
from stream_calib.events.identity import fingerprints, signature_hash, unit_buckets
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.memory_shards import MemoryShards
from stream_calib.windows.panes import ENDED_CLOCK_MS, PaneSettings
from stream_calib.windows.shard_store import (
    NEGATIVE_CODE,
    POSITIVE_CODE,
    WITHDRAWN_CODE,
    Advance,
    Inputs,
    LabelRows,
    Mark,
    ScoreRows,
    ShardCall,
)
from stream_calib.windows.vocabulary import Vocabulary
from stream_calib.windows.walk import read_matured, read_scored

SCORES, LABELS = "s:table:0", "l:table:0"
CODES = {None: WITHDRAWN_CODE, 0: NEGATIVE_CODE, 1: POSITIVE_CODE}


class ScoreRow(NamedTuple):
    id: str
    ts: int
    score: float
    carrier: str | None
    origin: str | None
    customer: str | None = None


class LabelRow(NamedTuple):
    id: str
    ts: int
    label: int | None


def joined(
    scores: Sequence[ScoreRow], labels: Sequence[LabelRow], config: Config, last_final: int
) -> tuple[int, list[PaneBlobs], dict[str, int]]:
    """First pane, all panes and counts, by the join in memory with nothing late."""
    settings = PaneSettings.of(config)
    values = [tuple(v or "__missing__" for v in (row.carrier, row.origin)) for row in scores]
    dictionary = {signature_hash(v): v for v in values}
    units = [(row.customer or row.id) if config.scores.unit else row.id for row in scores]
    rows = ScoreRows(
        fingerprints(row.id for row in scores),
        np.array([row.ts for row in scores], np.int64),
        np.array([row.score for row in scores], np.float64),
        np.array([signature_hash(v) for v in values], np.uint64),
        unit_buckets(fingerprints(units)),
        np.zeros(len(scores), np.uint16),
        np.zeros(len(scores), np.uint32),
        ("",),
    )
    versions = LabelRows(
        fingerprints(row.id for row in labels),
        settings.granule_end_ms(np.array([row.ts for row in labels], np.int64)),
        np.array([CODES[row.label] for row in labels], np.uint8),
    )
    shards, inputs = MemoryShards(1, settings), Inputs((SCORES,), (LABELS,))
    shards.register({SCORES: Mark(0, None), LABELS: Mark(0, None)}, inputs)
    advances = {key: Advance(0, 1, ENDED_CLOCK_MS, 0) for key in (SCORES, LABELS)}
    assert shards.apply([ShardCall(0, advances, rows, versions)], inputs) == [None]
    first, last = int(rows.event_time_ms.min()) // settings.pane_ms, int(rows.event_time_ms.max()) // settings.pane_ms
    panes, winners = [], 0
    for pane in range(first, last + 1):
        scored, matured = read_scored(shards, pane, inputs), read_matured(shards, pane, inputs, {})
        assert scored is not None
        assert matured is not None
        winners += int(scored.n.sum())
        cells = Vocabulary.of(config).cap(matured.cells, lambda hashes: {h: dictionary[h] for h in hashes}).cells
        panes.append(PaneBlobs(scored.pack(), cells.pack() if pane <= last_final else None))
    totals = shards.counts_after(-1)
    matched = totals.get("matched", 0)
    counts = {
        "accepted": len(scores),
        "winners": winners,
        "duplicates": len(scores) - winners,
        "labels": len(labels),
        "matched": matched,
        "unmatched": len(labels) - matched,
    }
    return first, panes, {name: n for name, n in counts.items() if n}


def as_in_the_state(panes: Sequence[PaneBlobs]) -> list[PaneBlobs]:
    """The same cells, packed as closers pack them."""
    return [
        PaneBlobs(
            ScoredCells.unpack(pane.scored).pack(),
            None if pane.matured is None else MaturedCells.unpack(pane.matured).pack(),
        )
        for pane in panes
    ]
