"""A model key that was retired and comes back with its state: its shards pass over what was written meanwhile."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stream_calib.windows.input_batch import EMPTY_LABELS, InputBatch, Records, judge_records
from stream_calib.windows.intake import Intake
from stream_calib.windows.row_codec import EMPTY_ROWS
from stream_calib.windows.shard_store import Mark, ShardStore


def bring_forward(intake: Intake, shards: ShardStore, marks: Mapping[str, Mark]) -> None:
    """Takes the shards to these marks where they are behind. None of the key's own lies between, and the log may not
    hold any more what does."""
    batches = [
        batch
        for input_key in (*intake.inputs.scores, *intake.inputs.labels)
        if input_key in marks and (batch := _gap(input_key, intake, shards, marks[input_key])) is not None
    ]
    if batches:
        intake.apply(batches)


def _gap(input_key: str, intake: Intake, shards: ShardStore, to: Mark) -> InputBatch | None:
    at = intake.restart(input_key)
    if at.next >= to.next:
        return None
    # The partition's clock at the mark, as a clock record that is the last of what is passed over.
    clock = [] if to.clock_ms is None else [to.clock_ms]
    records = Records(
        start=at.next,
        end=to.next,
        position=np.full(len(clock), to.next - 1, dtype=np.int64),
        append_time_ms=np.zeros(len(clock), dtype=np.int64),
        rows=EMPTY_ROWS if input_key.startswith("s:") else EMPTY_LABELS,
        row_record=np.empty(0, dtype=np.intp),
        clock_record=np.zeros(len(clock), dtype=np.intp),
        clock_time_ms=np.array(clock, dtype=np.int64),
    )
    return judge_records(input_key, records, at.clock_ms, shards.count, shards.settings)
