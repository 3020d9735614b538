"""What the monitor reads: records of `blocks` and `labels` as rows for the join, and rejects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream_calib.errors import BlockFormatError
from stream_calib.events.blocks import BlockRows, unpack
from stream_calib.events.contracts import ClockRecord, ModelKey, Reject, RejectReason
from stream_calib.events.control import is_control, read_clock
from stream_calib.events.label_decoder import LabelDecoder
from stream_calib.transport.port import OffsetRange, Record
from stream_calib.windows.input_batch import EMPTY_LABELS, Records
from stream_calib.windows.intake import concatenate_scores
from stream_calib.windows.join_entry import CODE_OF_LABEL
from stream_calib.windows.panes import ENDED_CLOCK_MS
from stream_calib.windows.row_codec import EMPTY_ROWS
from stream_calib.windows.shard_store import LabelRows, ScoreRows

Signatures = dict[int, tuple[str, ...]]
_CODE = np.array([CODE_OF_LABEL[-1], CODE_OF_LABEL[0], CODE_OF_LABEL[1]], dtype=np.uint8)


def read_blocks(
    records: Sequence[Record], span: OffsetRange, model_key: ModelKey
) -> tuple[Records, Signatures, list[Reject]]:
    """Rows of one partition of `blocks`, the dictionary of their signatures, and what cannot be read.

    Blocks of other model keys give no rows: they belong to other monitors.
    """
    parts: list[ScoreRows] = []
    row_record: list[NDArray[np.intp]] = []
    signatures: Signatures = {}
    clocks: list[ClockRecord] = []
    rejects: list[Reject] = []
    for i, record in enumerate(records):
        if is_control(record):
            clock = read_clock(record, i)
            if isinstance(clock, Reject):
                rejects.append(clock)
            else:
                clocks.append(clock)
            continue
        try:
            block = unpack(record.value or b"")
        except BlockFormatError as error:
            rejects.append(Reject(i, RejectReason.BLOCK_DAMAGED, str(error)))
            continue
        if block.model_key == model_key:
            parts.append(_score_rows(block))
            row_record.append(np.full(len(block.fingerprint), i, dtype=np.intp))
            signatures.update(zip(block.signature_hash.tolist(), block.signatures, strict=True))
    rows = concatenate_scores(parts) if parts else EMPTY_ROWS
    index = np.concatenate([np.empty(0, dtype=np.intp), *row_record])
    return _records(records, span, rows, index, clocks), signatures, rejects


def read_labels(records: Sequence[Record], span: OffsetRange, decoder: LabelDecoder) -> tuple[Records, list[Reject]]:
    """Rows of one partition of `labels`, and what cannot be read."""
    decoded = decoder.decode(records)
    assert decoded.labels is not None
    batch = decoded.labels
    rows = (
        LabelRows(batch.fingerprint, batch.event_time_ms, _CODE[batch.label + 1]) if len(batch.label) else EMPTY_LABELS
    )
    return _records(records, span, rows, batch.record_index, decoded.clocks), decoded.rejects


def _score_rows(block: BlockRows) -> ScoreRows:
    return ScoreRows(
        block.fingerprint,
        block.event_time_ms,
        block.score,
        block.signature_hash[block.signature_index],
        block.unit_bucket,
        block.snapshot_index.astype(np.uint16),
        block.served,
        tuple(block.snapshots),
    )


def _records(
    records: Sequence[Record],
    span: OffsetRange,
    rows: ScoreRows | LabelRows,
    row_record: NDArray[np.intp],
    clocks: Sequence[ClockRecord],
) -> Records:
    return Records(
        start=span.start,
        end=span.end,
        position=np.array([record.offset for record in records], dtype=np.int64),
        append_time_ms=np.array([record.append_time_ms for record in records], dtype=np.int64),
        rows=rows,
        row_record=row_record,
        clock_record=np.array([clock.record_index for clock in clocks], dtype=np.intp),
        clock_time_ms=np.array([ENDED_CLOCK_MS if c.end else c.clock_ms for c in clocks], dtype=np.int64),
    )
