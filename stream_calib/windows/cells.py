"""Cells: the atoms of all statistics, as sorted columns of plain integers that add, merge and compare exactly."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.errors import StateError
from stream_calib.windows.inflate import inflate

_MAGIC = b"SCC1"
_HEAD = struct.Struct("<4sBxxxI")


STATE_LEVEL = 6
"""Level of zlib in the state, where every byte is kept for weeks, and is part of the panes' hashes."""


def _pack(kind: int, columns: Sequence[NDArray[np.generic]], level: int) -> bytes:
    head = _HEAD.pack(_MAGIC, kind, len(columns[0]))
    return head + zlib.compress(b"".join(np.ascontiguousarray(c).tobytes() for c in columns), level)


def _unpack(blob: bytes, kind: int, dtypes: Sequence[str]) -> list[NDArray[np.generic]]:
    """Takes as much memory as the rows that the head tells of, and at most 1,032 times the blob's size: no deflated
    byte gives more."""
    try:
        magic, found, rows = _HEAD.unpack_from(blob)
        if magic != _MAGIC or found != kind:
            raise StateError(f"packed cells have magic {magic!r} and kind {found}, not {_MAGIC!r} and {kind}")
        size = rows * sum(np.dtype(d).itemsize for d in dtypes)
        body = inflate(blob[_HEAD.size :], size)
    except (struct.error, zlib.error) as error:
        raise StateError(f"packed cells of {len(blob)} bytes cannot be read: {error}") from error
    if len(body) != size:
        raise StateError(f"packed cells of {rows} rows have {len(body)} bytes, not {size}: they were damaged")
    columns, offset = [], 0
    for dtype in dtypes:
        columns.append(np.frombuffer(body, dtype=dtype, count=rows, offset=offset))
        offset += rows * np.dtype(dtype).itemsize
    return columns


@dataclass(frozen=True, slots=True)
class ScoredCells:
    """Scores accepted in one pane, one row for each (signature, grid bin), sorted by these two.

    All columns have shape (k,): `signature` <u8 (content hash), `grid_bin` <u2, `n` <i8 (winners, not duplicates).
    """

    signature: NDArray[np.uint64]
    grid_bin: NDArray[np.uint16]
    n: NDArray[np.int64]

    @classmethod
    def count(cls, signature: NDArray[np.uint64], grid_bin: NDArray[np.uint16]) -> ScoredCells:
        """Cells of rows given one by one."""
        return cls.merge([cls(signature, grid_bin, np.ones(len(signature), dtype=np.int64))])

    @classmethod
    def merge(cls, parts: Sequence[ScoredCells]) -> ScoredCells:
        """The sum of the parts."""
        signature = np.concatenate([p.signature for p in parts]) if parts else np.empty(0, np.uint64)
        grid_bin = np.concatenate([p.grid_bin for p in parts]) if parts else np.empty(0, np.uint16)
        n = np.concatenate([p.n for p in parts]) if parts else np.empty(0, np.int64)
        order, starts = _runs((signature, grid_bin))
        if not len(order):
            return cls(signature, grid_bin, n)
        first = order[starts]
        return cls(signature[first], grid_bin[first], np.add.reduceat(n[order], starts))

    def pack(self, level: int = STATE_LEVEL) -> bytes:
        """`level`: of zlib; whatever it is, the cells are unpacked the same."""
        return _pack(1, (self.signature, self.grid_bin, self.n), level)

    @classmethod
    def unpack(cls, blob: bytes) -> ScoredCells:
        """Raises StateError where the bytes are not packed scored cells."""
        return cls(*_unpack(blob, 1, ("<u8", "<u2", "<i8")))  # type: ignore[arg-type]  # dtypes are those of the columns


@dataclass(frozen=True, slots=True)
class MaturedCells:
    """Winners of one matured pane, one row for each (unit bucket, signature, grid bin), sorted by these three.

    All columns have shape (k,): `unit_bucket` u1, `signature` <u8, `grid_bin` <u2; `labelled`, `positives`,
    `unlabelled` <i8.
    """

    unit_bucket: NDArray[np.uint8]
    signature: NDArray[np.uint64]
    grid_bin: NDArray[np.uint16]
    labelled: NDArray[np.int64]
    positives: NDArray[np.int64]
    unlabelled: NDArray[np.int64]

    @classmethod
    def count(
        cls,
        unit_bucket: NDArray[np.uint8],
        signature: NDArray[np.uint64],
        grid_bin: NDArray[np.uint16],
        label: NDArray[np.int8],
    ) -> MaturedCells:
        """Cells of winners given one by one; `label` is 0, 1, or negative where there is none."""
        labelled = (label >= 0).astype(np.int64)
        return cls.merge([cls(unit_bucket, signature, grid_bin, labelled, (label == 1).astype(np.int64), 1 - labelled)])

    @classmethod
    def merge(cls, parts: Sequence[MaturedCells]) -> MaturedCells:
        """The sum of the parts."""
        if not parts:
            return EMPTY_MATURED
        keys = tuple(np.concatenate([getattr(p, c) for p in parts]) for c in ("unit_bucket", "signature", "grid_bin"))
        counts = [np.concatenate([getattr(p, c) for p in parts]) for c in ("labelled", "positives", "unlabelled")]
        order, starts = _runs(keys)
        if not len(order):
            return EMPTY_MATURED
        first = order[starts]
        bucket, signature, grid_bin = (k[first] for k in keys)
        return cls(bucket, signature, grid_bin, *(np.add.reduceat(c[order], starts) for c in counts))

    def pack(self, level: int = STATE_LEVEL) -> bytes:
        """As of ScoredCells."""
        counts = self.labelled, self.positives, self.unlabelled
        return _pack(2, (self.unit_bucket, self.signature, self.grid_bin, *counts), level)

    @classmethod
    def unpack(cls, blob: bytes) -> MaturedCells:
        """Raises StateError where the bytes are not packed matured cells."""
        return cls(*_unpack(blob, 2, ("u1", "<u8", "<u2", "<i8", "<i8", "<i8")))  # type: ignore[arg-type]  # as above


def _runs(keys: tuple[NDArray[np.generic], ...]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Sorting order by the keys (first key first), and the starts of the runs of equal keys in that order."""
    order = np.lexsort(keys[::-1])
    if not len(order):
        return order, order
    changed = np.ones(len(order), dtype=bool)
    changed[1:] = False
    for key in keys:
        in_order = key[order]
        changed[1:] |= in_order[1:] != in_order[:-1]
    return order, np.flatnonzero(changed)


EMPTY_SCORED = ScoredCells(np.empty(0, np.uint64), np.empty(0, np.uint16), np.empty(0, np.int64))
EMPTY_MATURED = MaturedCells(
    np.empty(0, np.uint8),
    np.empty(0, np.uint64),
    np.empty(0, np.uint16),
    np.empty(0, np.int64),
    np.empty(0, np.int64),
    np.empty(0, np.int64),
)
