"""The checkpoint: what all panes up to one came to, so that their blobs can be dropped and a refit begins behind it.

One blob, `evidence`; the field `checkpoint` names its last pane and its hash, and both change in one compare-and-set.
It stands so far back that whatever a refit reads pane by pane is behind it. So evidence that begins there has the same
bits as one that has read every pane since the first.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from stream_calib.config import Config
from stream_calib.drift.coverage import CoverageState
from stream_calib.errors import StateError
from stream_calib.refit.decayed_counts import CountsState
from stream_calib.refit.evidence import EvidenceSums
from stream_calib.snapshot.canonical import canonical_json, sha256_hex
from stream_calib.windows.inflate import inflate

NAME = "evidence"
"""The blob."""
FIELD = "checkpoint"
_MAGIC = b"SCE1"
_HEAD = struct.Struct("<4sI")
_COLUMNS = (("signature", "<u8"), ("derived", "<i4"), ("grid_bin", "<u2"))


def identity(config: Config) -> str:
    """16 hexadecimal digits for what the sums depend on beside the cells; those of another identity are of no use."""
    scores, calibration = config.scores, config.calibration
    return sha256_hex(
        canonical_json(
            {
                "structure_half_life_ms": calibration.structure_half_life_ms,
                "level_half_life_ms": calibration.level_half_life_ms,
                "derived": list(scores.derived),
                "zone": scores.zone if scores.derived else None,
                "pane_ms": config.windows.pane_ms,
            }
        )
    )[:16]


class Named(NamedTuple):
    """The field."""

    last_pane: int
    sha256: str
    identity: str

    def encode(self) -> str:
        return f"{self.last_pane}:{self.sha256}:{self.identity}"


def named(field: str | None) -> Named | None:
    """The checkpoint that the field names; None where there is none yet. Raises StateError where it cannot be read."""
    if field is None:
        return None
    try:
        pane, sha256, found = field.split(":")
        return Named(int(pane), sha256, found)
    except ValueError as error:
        raise StateError(
            f"the field {FIELD} is {field!r} and names no checkpoint: the model key's state is damaged; restore it from"
            " a backup"
        ) from error


def pack(sums: EvidenceSums) -> bytes:
    """The same bytes for the same sums: a head, canonical JSON, and the columns, compressed."""
    counts = sums.counts
    document = canonical_json(
        {
            "last_pane": sums.last_pane,
            "cells_sha256": sums.cells_sha256,
            "fit_rows": sums.fit_rows,
            "fit_positives": sums.fit_positives,
            "coverage": asdict(sums.coverage),
            "step": counts.step,
            "derived_values": counts.derived_values,
            "sums": list(counts.sums.shape),
        }
    )
    columns = [np.ascontiguousarray(getattr(counts, name).astype(dtype)) for name, dtype in _COLUMNS]
    body = b"".join(column.tobytes() for column in [*columns, np.ascontiguousarray(counts.sums.astype("<i8"))])
    return _HEAD.pack(_MAGIC, len(document)) + document + zlib.compress(body, 6)


def unpack(blob: bytes, sha256: str) -> EvidenceSums:
    """The sums. Raises StateError where the bytes are not of that hash, or of another format."""
    if sha256_hex(blob) != sha256:
        raise StateError(
            f"the blob {NAME} of {len(blob)} bytes has not the hash {sha256} that the field {FIELD} names: the model"
            " key's state is damaged; restore it from a backup"
        )
    magic, length = _HEAD.unpack_from(blob)
    if magic != _MAGIC:
        raise StateError(
            f"the checkpoint has the format {magic!r}, this program reads {_MAGIC!r}: use the one it is of"
        )
    document: dict[str, Any] = json.loads(blob[_HEAD.size : _HEAD.size + length])
    kinds, rows = document["sums"]
    size = rows * (sum(np.dtype(dtype).itemsize for _, dtype in _COLUMNS) + 8 * kinds)
    try:
        body = inflate(blob[_HEAD.size + length :], size)
    except zlib.error as error:
        raise StateError(f"the checkpoint of {rows} cells cannot be read: {error}; restore it from a backup") from error
    columns, offset = [], 0
    for _, dtype in _COLUMNS:
        columns.append(np.frombuffer(body, dtype, rows, offset))
        offset += columns[-1].nbytes
    signature, derived, grid_bin = columns
    counts = CountsState(
        document["step"],
        tuple(map(tuple, document["derived_values"])),
        signature.astype(np.uint64),
        derived.astype(np.intp),
        grid_bin.astype(np.uint16),
        np.frombuffer(body, "<i8", kinds * rows, offset).reshape(kinds, rows).astype(np.int64),
    )
    return EvidenceSums(
        document["last_pane"],
        document["cells_sha256"],
        document["fit_rows"],
        document["fit_positives"],
        CoverageState(**document["coverage"]),
        counts,
    )
