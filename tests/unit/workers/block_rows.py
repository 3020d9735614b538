"""Rows of a block that is as large as blocks get."""

from __future__ import annotations

import numpy as np

from stream_calib.events.blocks import MAX_BLOCK_ROWS, BlockRows
from stream_calib.events.contracts import ModelKey
from stream_calib.events.identity import signature_hash


def widest_rows(*, attributes: int, value_bytes: int) -> BlockRows:
    """A full block in which every row has a signature of its own, of values of `value_bytes` bytes."""
    n = MAX_BLOCK_ROWS
    signatures = [tuple(f"{i:x}".rjust(value_bytes, "x") for _ in range(attributes)) for i in range(n)]
    return BlockRows(
        model_key=ModelKey.of("m", "1"),
        signatures=signatures,
        signature_hash=np.array([signature_hash(s) for s in signatures], dtype=np.uint64),
        snapshots=["000001-0123456789ab"],
        fingerprint=np.arange(n, dtype=np.uint64),
        event_time_ms=np.full(n, 1_700_000_000_000, dtype=np.int64),
        score=np.full(n, 0.5),
        signature_index=np.arange(n, dtype=np.uint16),
        unit_bucket=np.zeros(n, dtype=np.uint8),
        snapshot_index=np.zeros(n, dtype=np.uint8),
        served=np.zeros(n, dtype=np.uint32),
    )
