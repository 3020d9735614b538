"""Rows of a pane as bytes: a small head, dictionaries, columns, deflated where that is shorter.

One chunk is what one call brought for one pane and shard; its layout, little-endian:
`u8 deflated | u4 rows | u2 signatures | u1 snapshots | i8 base time` and then the body: fingerprints u8, times since
the base u4, scores f8, signature indexes u2, unit buckets u1, snapshot indexes u1, served u4, signatures u8, and the
snapshots' versions, each as u1 length and ASCII bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_calib.errors import StateError
from stream_calib.windows.inflate import inflate
from stream_calib.windows.shard_store import ScoreRows

_HEAD = struct.Struct("<BIHBq")
_ROW_COLUMNS = (("<u8", 8), ("<u4", 4), ("<f8", 8), ("<u2", 2), ("u1", 1), ("u1", 1), ("<u4", 4))
_ROW_BYTES = sum(width for _, width in _ROW_COLUMNS)
_MAX_VERSION_BYTES = 256


def encode_rows(rows: ScoreRows) -> bytes:
    """One chunk. At most 65,535 signatures, 255 snapshots, and times that span less than 2^32 ms (a pane does)."""
    signatures, index = np.unique(rows.signature, return_inverse=True)
    base = int(rows.event_time_ms.min())
    versions = b"".join(bytes((len(v),)) + v.encode("ascii") for v in rows.snapshots)
    body = b"".join(
        (
            rows.fingerprint.astype("<u8").tobytes(),
            (rows.event_time_ms - base).astype("<u4").tobytes(),
            rows.score.astype("<f8").tobytes(),
            index.astype("<u2").tobytes(),
            rows.unit_bucket.tobytes(),
            rows.snapshot_index.astype("u1").tobytes(),
            rows.served.astype("<u4").tobytes(),
            signatures.astype("<u8").tobytes(),
            versions,
        )
    )
    deflated = zlib.compress(body, 1)
    shorter = len(deflated) < len(body)
    head = _HEAD.pack(shorter, len(rows), len(signatures), len(rows.snapshots), base)
    return head + (deflated if shorter else body)


def decode_rows(chunks: Sequence[bytes]) -> ScoreRows:
    """The rows of all chunks in their order, with one common list of snapshots. Raises StateError for damaged bytes."""
    snapshots: dict[str, int] = {"": 0}
    parts = [_decode_chunk(chunk, snapshots) for chunk in chunks]
    if not parts:
        return EMPTY_ROWS
    fingerprint, time, score, signature, bucket, snapshot, served = (
        np.concatenate(c) for c in zip(*parts, strict=True)
    )
    return ScoreRows(fingerprint, time, score, signature, bucket, snapshot, served, tuple(snapshots))


def _decode_chunk(chunk: bytes, snapshots: dict[str, int]) -> tuple[NDArray[Any], ...]:
    try:
        deflated, n, n_signatures, n_snapshots, base = _HEAD.unpack_from(chunk)
        body = chunk[_HEAD.size :]
        if deflated:
            body = inflate(body, n * _ROW_BYTES + 8 * n_signatures + _MAX_VERSION_BYTES * n_snapshots)
        columns, offset = [], 0
        for dtype, width in _ROW_COLUMNS:
            columns.append(np.frombuffer(body, dtype, n, offset))
            offset += n * width
        signatures = np.frombuffer(body, "<u8", n_signatures, offset)
        offset += 8 * n_signatures
        local = []
        for _ in range(n_snapshots):
            end = offset + 1 + body[offset]
            local.append(snapshots.setdefault(body[offset + 1 : end].decode("ascii"), len(snapshots)))
            offset = end
        if offset != len(body):
            raise ValueError(f"{len(body) - offset} bytes too many")
        fingerprint, time, score, signature_index, bucket, snapshot_index, served = columns
        return (
            fingerprint,
            time.astype(np.int64) + base,
            score,
            signatures[signature_index],
            bucket,
            np.array(local, dtype=np.uint16)[snapshot_index],
            served,
        )
    except (struct.error, zlib.error, ValueError, IndexError) as error:
        raise StateError(f"a chunk of {len(chunk)} bytes of pane rows is damaged: {error}") from error


EMPTY_ROWS = ScoreRows(
    np.empty(0, np.uint64),
    np.empty(0, np.int64),
    np.empty(0, np.float64),
    np.empty(0, np.uint64),
    np.empty(0, np.uint8),
    np.empty(0, np.uint16),
    np.empty(0, np.uint32),
    ("",),
)
