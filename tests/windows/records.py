"""Records of the oracle's kinds (tests/oracle/offline.py) as the windows take them in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from stream_calib.events.contracts import TOMBSTONE_TIME_MS
from stream_calib.events.identity import fingerprints, signature_hash, unit_buckets
from stream_calib.windows.input_batch import EMPTY_LABELS, InputBatch, Records, judge_records
from stream_calib.windows.join_entry import CODE_OF_LABEL
from stream_calib.windows.panes import ENDED_CLOCK_MS, PaneSettings
from stream_calib.windows.row_codec import EMPTY_ROWS
from stream_calib.windows.shard_store import WITHDRAWN_CODE, LabelRows, Mark, ScoreRows
from tests.oracle.offline import Clock, End, Label, Score, Settings


class Block(NamedTuple):
    """One record of `blocks`."""

    scores: tuple[Score, ...]
    snapshot: str = ""
    served: float = 0.5


Item: TypeAlias = Block | Label | Clock | End


def oracle_settings(s: PaneSettings) -> Settings:
    lateness = s.score_lateness_ms, s.label_lateness_ms
    return Settings(s.horizon_ms, s.pane_ms, *lateness, s.max_clock_skew_ms, s.broker_clock, s.sample_rate)


def append_time(item: Item) -> int:
    """When the log took the record; far in the future where the test does not say, so that nothing is skewed. Long ago
    for control records: they never are."""
    if isinstance(item, Clock | End):
        return 0
    append = item.scores[0].append_ms if isinstance(item, Block) else getattr(item, "append_ms", None)
    return ENDED_CLOCK_MS if append is None else append


def score_rows(blocks: Sequence[Block]) -> ScoreRows:
    scores = [(score, block) for block in blocks for score in block.scores]
    if not scores:
        return EMPTY_ROWS
    snapshots = list(dict.fromkeys(block.snapshot for block in blocks))
    ids = fingerprints(s.event_id for s, _ in scores)
    units = fingerprints(s.event_id if s.unit is None else s.unit for s, _ in scores)
    return ScoreRows(
        ids,
        np.array([s.time_ms for s, _ in scores], dtype=np.int64),
        np.array([s.score for s, _ in scores]),
        np.array([signature_hash(s.attributes) for s, _ in scores], dtype=np.uint64),
        unit_buckets(units),
        np.array([snapshots.index(b.snapshot) for _, b in scores], dtype=np.uint16),
        np.array([round(b.served * (2**32 - 1)) for _, b in scores], dtype=np.uint32),
        tuple(snapshots),
    )


def label_rows(labels: Sequence[Label]) -> LabelRows:
    if not labels:
        return EMPTY_LABELS
    return LabelRows(
        fingerprints(label.event_id for label in labels),
        np.array([TOMBSTONE_TIME_MS if x.time_ms is None else x.time_ms for x in labels], dtype=np.int64),
        np.array([WITHDRAWN_CODE if x.label is None else CODE_OF_LABEL[x.label] for x in labels], dtype=np.uint8),
    )


def records(side: str, items: Sequence[Item], start: int = 0, gap: int = 1) -> Records:
    """`gap` 2 leaves holes between the positions, as transaction markers do."""
    blocks = [x for x in items if isinstance(x, Block)]
    labels = [x for x in items if isinstance(x, Label)]
    row_record = [i for i, x in enumerate(items) for _ in range(_rows_of(x))]
    clocks = [i for i, x in enumerate(items) if isinstance(x, Clock | End)]
    times = [ENDED_CLOCK_MS if isinstance(x, End) else x.time_ms for x in items if isinstance(x, Clock | End)]
    return Records(
        start,
        start + gap * len(items),
        start + gap * np.arange(len(items), dtype=np.int64),
        np.array([append_time(x) for x in items], dtype=np.int64),
        score_rows(blocks) if side == "s" else label_rows(labels),
        np.array(row_record, dtype=np.intp),
        np.array(clocks, dtype=np.intp),
        np.array(times, dtype=np.int64),
    )


def batch(
    input_key: str, items: Sequence[Item], mark: Mark, count: int, settings: PaneSettings, gap: int = 1
) -> InputBatch:
    """The items as the batch that follows `mark` on the input."""
    found = records(input_key[0], items, mark.next, gap)
    return judge_records(input_key, found, mark.clock_ms, count, settings)


def _rows_of(item: Item) -> int:
    if isinstance(item, Block):
        return len(item.scores)
    return int(isinstance(item, Label))
