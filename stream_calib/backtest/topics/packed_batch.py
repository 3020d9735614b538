"""A read batch as bytes, from one process to another: columns as they are in memory, and the rest as JSON.

``<place i4> <length of the head u4> <head> <columns>``; the head is JSON with blanks up to a multiple of 8 bytes, so
that columns lie aligned, the wide ones first. An error has the place -1, and no columns.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_calib.backtest.topics.partition_reading import ReadBatch
from stream_calib.windows.input_batch import Records
from stream_calib.windows.shard_store import LabelRows, ScoreRows

_START = struct.Struct("<iI")
_ERROR = -1
_RECORD_COLUMNS = ("<i8", "<i8", "<i8", "<i8", "<i8")
_SCORE_COLUMNS = ("<u8", "<i8", "<f8", "<u8", "<u4", "<u2", "u1")
_LABEL_COLUMNS = ("<u8", "<i8", "u1")


def pack_batch(place: int, batch: ReadBatch) -> bytes:
    """`place`: of the plan that it is of."""
    records, rows = batch.records, batch.records.rows
    head = {
        "range": [records.start, records.end],
        "held": batch.held,
        "rejects": batch.rejects,
        "sizes": [len(records.position), len(rows), len(records.clock_record)],
        "snapshots": rows.snapshots if isinstance(rows, ScoreRows) else None,
        "signatures": [[signature, *values] for signature, values in batch.signatures.items()],
    }
    columns: list[NDArray[Any]] = [
        *(records.position, records.append_time_ms),
        *(records.clock_record, records.clock_time_ms),
        *(records.row_record, rows.fingerprint, rows.event_time_ms),
    ]
    if isinstance(rows, ScoreRows):
        columns += [rows.score, rows.signature, rows.served, rows.snapshot_index, rows.unit_bucket]
    else:
        columns += [rows.code]
    dtypes = _RECORD_COLUMNS + (_SCORE_COLUMNS if isinstance(rows, ScoreRows) else _LABEL_COLUMNS)
    packed = [np.ascontiguousarray(column, dtype).data for column, dtype in zip(columns, dtypes, strict=True)]
    return b"".join([_begin(place, head), *packed])


def pack_error(kind: str, message: str) -> bytes:
    """`kind`: name of its class."""
    return _begin(_ERROR, {"kind": kind, "message": message})


def place_of(packed: bytes) -> int | None:
    """The place of the plan that the batch is of; None for an error."""
    place: int = _START.unpack_from(packed)[0]
    return None if place == _ERROR else place


def unpack_error(packed: bytes) -> tuple[str, str]:
    """Name of the error's class, and its message."""
    head, _ = _head(packed)
    return head["kind"], head["message"]


def unpack_batch(packed: bytes) -> ReadBatch:
    """The batch; its columns are read-only views of the bytes."""
    head, offset = _head(packed)
    n_records, n_rows, n_clocks = head["sizes"]
    scores = head["snapshots"] is not None
    counts = [n_records, n_records, n_clocks, n_clocks] + [n_rows] * (8 if scores else 4)
    columns: list[NDArray[Any]] = []
    for dtype, n in zip(_RECORD_COLUMNS + (_SCORE_COLUMNS if scores else _LABEL_COLUMNS), counts, strict=True):
        columns.append(np.frombuffer(packed, dtype, n, offset))
        offset += columns[-1].nbytes
    position, append_time_ms, clock_record, clock_time_ms, row_record, fingerprint, event_time_ms, *rest = columns
    rows: ScoreRows | LabelRows
    if scores:
        score, signature, served, snapshot_index, unit_bucket = rest
        snapshots = tuple(head["snapshots"])
        rows = ScoreRows(fingerprint, event_time_ms, score, signature, unit_bucket, snapshot_index, served, snapshots)
    else:
        rows = LabelRows(fingerprint, event_time_ms, *rest)
    start, end = head["range"]
    records = Records(start, end, position, append_time_ms, rows, row_record, clock_record, clock_time_ms)
    signatures = {signature: tuple(values) for signature, *values in head["signatures"]}
    return ReadBatch(records, signatures, head["held"], head["rejects"])


def _begin(place: int, head: dict[str, Any]) -> bytes:
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return _START.pack(place, len(text)) + text


def _head(packed: bytes) -> tuple[Any, int]:
    end = _START.size + _START.unpack_from(packed)[1]
    return json.loads(packed[_START.size : end]), end
