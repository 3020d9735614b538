"""Blocks: packed rows of one batch and partition on the internal topic `blocks`, from calibrate to monitor.

Layout, little-endian, columns in the order of their item size so that each is aligned:

| part | type | content |
|---|---|---|
| magic, format version | 4 bytes, u4 | ``SCBK``, 1 |
| crc32 | u4 | of everything after it |
| n, s, v, a | 4 u2 | rows, signatures, snapshot versions, attributes in a signature |
| text bytes | u4 | length of the texts together |
| fingerprint, event time (ms), score | u8, i8, f8 [n] | |
| signature hash | u8 [s] | `identity.signature_hash` |
| served | u4 [n] | p x (2^32 - 1), rounded |
| text length | u2 [2 + v + s a] | of each text, bytes |
| signature index | u2 [n] | |
| unit bucket, snapshot index | u1 [n] | |
| texts | UTF-8 | model, model version, snapshot versions ("" is identity), values signature by signature |
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_calib.errors import BlockFormatError
from stream_calib.events.contracts import MAX_EVENT_TIME_MS, MIN_EVENT_TIME_MS, ModelKey, ScoreBatch
from stream_calib.events.identity import UNIT_BUCKETS, signature_hash

MAX_BLOCK_ROWS = 1_000
"""Most rows of one block that is read."""
BLOCK_ROWS = 200
"""Most rows of one that is written: a shard takes a block as one, and what it takes as one is to be short work."""

SERVED_ONE = 2**32 - 1
"""Fixed point of a served probability of 1."""

_MAGIC = b"SCBK"
_FORMAT = 1
_HEAD = struct.Struct("<4sII4HI")
_CHECKED_FROM = 12
_COLUMNS = ("<u8", "<i8", "<f8", "<u8", "<u4", "<u2", "<u2", "u1", "u1")
_MAX_TEXT = 2**16 - 1
_MAX_SNAPSHOTS = 2**8


class _PackedSignature(NamedTuple):
    hash: int
    text_lengths: bytes
    texts: bytes


@lru_cache(maxsize=65_536)
def _packed(signature: tuple[str, ...]) -> _PackedSignature:
    """Signatures come again in block after block."""
    lengths, texts = _packed_texts(signature)
    return _PackedSignature(signature_hash(signature), lengths, texts)


def _packed_texts(texts: Sequence[str]) -> tuple[bytes, bytes]:
    """Lengths and UTF-8 of the texts, as in the block."""
    encoded = [text.encode() for text in texts]
    longest = max(map(len, encoded), default=0)
    if longest > _MAX_TEXT:
        raise BlockFormatError(f"a text of {longest} bytes; a block holds texts of at most {_MAX_TEXT}")
    return struct.pack(f"<{len(encoded)}H", *map(len, encoded)), b"".join(encoded)


@dataclass(frozen=True, slots=True)
class BlockRows:
    """n rows (1 <= n <= MAX_BLOCK_ROWS) of one model key."""

    model_key: ModelKey
    signatures: list[tuple[str, ...]]
    """s tuples of attribute values, all of one length."""
    signature_hash: NDArray[np.uint64]
    """(s,) content hash of each signature."""
    snapshots: list[str]
    """Versions served, at most 256; "" is identity."""
    fingerprint: NDArray[np.uint64]
    """(n,) fingerprint of the event id."""
    event_time_ms: NDArray[np.int64]
    """(n,) epoch milliseconds."""
    score: NDArray[np.float64]
    """(n,) raw score in [0, 1]."""
    signature_index: NDArray[np.uint16]
    """(n,) index into `signatures`."""
    unit_bucket: NDArray[np.uint8]
    """(n,) 0 .. UNIT_BUCKETS - 1."""
    snapshot_index: NDArray[np.uint8]
    """(n,) index into `snapshots`."""
    served: NDArray[np.uint32]
    """(n,) probability served, see `served_fixed_point`."""


def served_fixed_point(probability: NDArray[np.float64]) -> NDArray[np.uint32]:
    """(n,) uint32 round(p x (2^32 - 1)) of probabilities in [0, 1]; off by at most 1.2e-10."""
    return np.rint(probability * SERVED_ONE).astype(np.uint32)


def served_probability(served: NDArray[np.uint32]) -> NDArray[np.float64]:
    """(n,) float64, the inverse of `served_fixed_point`."""
    probability: NDArray[np.float64] = served / np.float64(SERVED_ONE)
    return probability


def pack(rows: BlockRows) -> bytes:
    """The rows as bytes. Raises BlockFormatError for rows that `unpack` would refuse."""
    attributes = len(rows.signatures[0]) if rows.signatures else 0
    if any(len(signature) != attributes for signature in rows.signatures):
        raise BlockFormatError(f"signatures of one block must all have {attributes} values")
    lengths, texts = _packed_texts([*rows.model_key, *rows.snapshots])
    packed = list(map(_packed, rows.signatures))
    texts += b"".join([signature.texts for signature in packed])
    _model_key(*rows.model_key)
    _check(rows)
    body = b"".join(
        [
            rows.fingerprint.astype("<u8").tobytes(),
            rows.event_time_ms.astype("<i8").tobytes(),
            rows.score.astype("<f8").tobytes(),
            rows.signature_hash.astype("<u8").tobytes(),
            rows.served.astype("<u4").tobytes(),
            lengths,
            *[signature.text_lengths for signature in packed],
            rows.signature_index.astype("<u2").tobytes(),
            rows.unit_bucket.astype("u1").tobytes(),
            rows.snapshot_index.astype("u1").tobytes(),
            texts,
        ]
    )
    counts = (len(rows.fingerprint), len(rows.signatures), len(rows.snapshots), attributes)
    head = _HEAD.pack(_MAGIC, _FORMAT, 0, *counts, len(texts))
    crc = zlib.crc32(body, zlib.crc32(head[_CHECKED_FROM:]))
    return _HEAD.pack(_MAGIC, _FORMAT, crc, *counts, len(texts)) + body


def unpack(block: bytes) -> BlockRows:
    """The rows of a block; columns are read-only views of the bytes.

    Raises BlockFormatError for anything that is not a whole, undamaged block with values in range.
    """
    if len(block) < _HEAD.size:
        raise BlockFormatError(f"{len(block)} bytes are too few for a block")
    magic, version, crc, n, s, v, a, text_bytes = _HEAD.unpack_from(block)
    if magic != _MAGIC or version != _FORMAT:
        raise BlockFormatError(f"magic {magic!r} and format {version}: this version reads {_MAGIC!r} and {_FORMAT}")
    n_texts = 2 + v + s * a
    expected = _HEAD.size + n * 32 + s * 8 + n_texts * 2 + text_bytes
    if len(block) != expected:
        raise BlockFormatError(f"{len(block)} bytes where {n} rows and {s} signatures with their texts make {expected}")
    if zlib.crc32(memoryview(block)[_CHECKED_FROM:]) != crc:
        raise BlockFormatError("the checksum does not match: the block was damaged on its way")
    columns = []
    offset = _HEAD.size
    for dtype, count in zip(_COLUMNS, (n, n, n, s, n, n_texts, n, n, n), strict=True):
        columns.append(np.frombuffer(block, dtype=dtype, count=count, offset=offset))
        offset += columns[-1].nbytes
    texts = _texts(block[offset:], columns[5])
    values = texts[2 + v :]
    rows = BlockRows(
        model_key=_model_key(texts[0], texts[1]),
        signatures=[tuple(values[i * a : (i + 1) * a]) for i in range(s)],
        signature_hash=columns[3],
        snapshots=texts[2 : 2 + v],
        fingerprint=columns[0],
        event_time_ms=columns[1],
        score=columns[2],
        signature_index=columns[6],
        unit_bucket=columns[7],
        snapshot_index=columns[8],
        served=columns[4],
    )
    _check(rows)
    return rows


def blocks_of(
    batch: ScoreBatch, rows: NDArray[np.intp], model_key: ModelKey, snapshot: str, served: NDArray[np.float64]
) -> list[bytes]:
    """Packed blocks of the chosen rows of a batch, each with a dictionary of its own.

    `rows` (m,) indexes the batch: the rows of one source partition, in order. `snapshot` is the version that served all
    of them ("" for identity), `served` (n,) the probabilities of the whole batch.
    """
    return [
        _block(batch, rows[start : start + BLOCK_ROWS], model_key, snapshot, served)
        for start in range(0, len(rows), BLOCK_ROWS)
    ]


def _block(
    batch: ScoreBatch, rows: NDArray[np.intp], model_key: ModelKey, snapshot: str, served: NDArray[np.float64]
) -> bytes:
    used, index = np.unique(batch.signature_index[rows], return_inverse=True)
    signatures = [batch.signatures[i] for i in used.tolist()]
    return pack(
        BlockRows(
            model_key=model_key,
            signatures=signatures,
            signature_hash=np.array([_packed(signature).hash for signature in signatures], dtype=np.uint64),
            snapshots=[snapshot],
            fingerprint=batch.fingerprint[rows],
            event_time_ms=batch.event_time_ms[rows],
            score=batch.score[rows],
            signature_index=index.astype(np.uint16),
            unit_bucket=batch.unit_bucket[rows],
            snapshot_index=np.zeros(len(rows), dtype=np.uint8),
            served=served_fixed_point(served[rows]),
        )
    )


def _texts(joined: bytes, lengths: NDArray[np.uint16]) -> list[str]:
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    if ends[-1] != len(joined):
        raise BlockFormatError(f"text lengths add up to {ends[-1]} bytes, and there are {len(joined)}")
    try:
        return [joined[start:end].decode() for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    except UnicodeDecodeError as error:
        raise BlockFormatError(f"a text of the block is not UTF-8: {error}") from error


def _model_key(model: str, version: str) -> ModelKey:
    try:
        return ModelKey.of(model, version)
    except ValueError as error:
        raise BlockFormatError(f"the block is of an impossible model: {error}") from error


def _check(rows: BlockRows) -> None:
    n = len(rows.fingerprint)
    if not 1 <= n <= MAX_BLOCK_ROWS:
        raise BlockFormatError(f"{n} rows; a block has 1 to {MAX_BLOCK_ROWS}")
    if len(rows.snapshots) > _MAX_SNAPSHOTS or len(rows.signature_hash) != len(rows.signatures):
        found = f"{len(rows.snapshots)} snapshots, {len(rows.signatures)} signatures, {len(rows.signature_hash)} hashes"
        raise BlockFormatError(f"{found}: at most {_MAX_SNAPSHOTS} snapshots, and a hash for each signature")
    per_row: Sequence[NDArray[np.generic]] = (
        rows.event_time_ms,
        rows.score,
        rows.signature_index,
        rows.unit_bucket,
        rows.snapshot_index,
        rows.served,
    )
    if any(len(values) != n for values in per_row):
        raise BlockFormatError(f"columns of {[len(values) for values in per_row]} values for {n} rows")
    for name, values, end in (
        ("signature index", rows.signature_index, len(rows.signatures)),
        ("snapshot index", rows.snapshot_index, len(rows.snapshots)),
        ("unit bucket", rows.unit_bucket, UNIT_BUCKETS),
    ):
        if int(values.max()) >= end:
            raise BlockFormatError(f"{name} {int(values.max())} where there are {end}")
    if not (rows.event_time_ms.min() >= MIN_EVENT_TIME_MS and rows.event_time_ms.max() < MAX_EVENT_TIME_MS):
        raise BlockFormatError("an event time lies outside the years 2000-2099")
    if not (rows.score.min() >= 0.0 and rows.score.max() <= 1.0):  # NaN fails both
        raise BlockFormatError("a score is not in [0, 1]")
