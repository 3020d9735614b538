"""Rows of a pane as bytes: a small head, dictionaries, columns, deflated where that is shorter.

One chunk is what one call brought for one pane and shard; its layout, little-endian:
`u8 form | u4 rows | u2 signatures | u1 snapshots | i8 base time` and then the body: fingerprints u8, times since
the base u4, scores f8, signature indexes u2, unit buckets u1, snapshot indexes u1, served u4, signatures u8, and the
snapshots' versions, each as u1 length and ASCII bytes.

Forms: 0 as it is; 1 deflated, as versions before wrote it; 2 deflated, with each column of rows as the lowest bytes of
all rows, then the next ones, and so on, and with the complement of the number of rows. That is 8 % less than form 1, as
the high bytes of times, scores and indexes hardly differ from row to row. By the complement a version before, to which
all but 0 is form 1, refuses it, and does not misread it.
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
_PLAIN, _DEFLATED, _DEFLATED_BY_BYTE = range(3)
_COMPLEMENT = 0xFFFFFFFF


def encode_rows(rows: ScoreRows) -> bytes:
    """One chunk. At most 65,535 signatures, 255 snapshots, and times that span less than 2^32 ms (a pane does)."""
    signatures, index = np.unique(rows.signature, return_inverse=True)
    base = int(rows.event_time_ms.min())
    columns: tuple[NDArray[Any], ...] = (
        rows.fingerprint,
        rows.event_time_ms - base,
        rows.score,
        index,
        rows.unit_bucket,
        rows.snapshot_index,
        rows.served,
    )
    cells = [column.astype(dtype) for column, (dtype, _) in zip(columns, _ROW_COLUMNS, strict=True)]
    versions = b"".join(bytes((len(v),)) + v.encode("ascii") for v in rows.snapshots)
    rest = signatures.astype("<u8").tobytes() + versions
    by_byte = [column.view("u1").reshape(len(rows), -1).T.tobytes() for column in cells]
    body = zlib.compress(b"".join((*by_byte, rest)), 1)
    form, n = _DEFLATED_BY_BYTE, len(rows) ^ _COMPLEMENT
    if len(body) >= len(rows) * _ROW_BYTES + len(rest):
        form, n, body = _PLAIN, len(rows), b"".join((*(column.tobytes() for column in cells), rest))
    return _HEAD.pack(form, n, len(signatures), len(rows.snapshots), base) + body


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
        form, n, n_signatures, n_snapshots, base = _HEAD.unpack_from(chunk)
        if form > _DEFLATED_BY_BYTE:
            raise ValueError(f"form {form} is not known; a later version may have written it")
        if form == _DEFLATED_BY_BYTE:
            n ^= _COMPLEMENT
        body = chunk[_HEAD.size :]
        if form != _PLAIN:
            body = inflate(body, n * _ROW_BYTES + 8 * n_signatures + _MAX_VERSION_BYTES * n_snapshots)
        columns, offset = [], 0
        for dtype, width in _ROW_COLUMNS:
            if form == _DEFLATED_BY_BYTE:
                by_byte = np.frombuffer(body, "u1", n * width, offset).reshape(width, n)
                columns.append(np.ascontiguousarray(by_byte.T).view(dtype).reshape(n))
            else:
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
