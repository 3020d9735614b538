"""Reading join entries (their forms are described in lua/entry.lua) and naming where they lie."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_calib.errors import StateError
from stream_calib.windows.shard_store import NEGATIVE_CODE, POSITIVE_CODE, WITHDRAWN_CODE

USUAL_LENGTH = 10
_USUAL = np.dtype([("packed", "u1", 6), ("delta", "<u4")])
JOIN_BUCKETS = 1 << 15
"""Hashes that the entries of a shard are spread over."""
_BUCKET_SHIFT = np.uint64(64 - 15)


class Version(NamedTuple):
    """A label as it was held."""

    time_ms: int
    code: int
    from_ms: int = 0
    """Scores before that are out of its reach."""


class Outcome(IntEnum):
    """What becomes of a label."""

    UNSCORED = 0
    MATCHED = 1
    LEAKED = 2
    BEYOND_HORIZON = 3


CODE_OF_LABEL = {-1: WITHDRAWN_CODE, 0: NEGATIVE_CODE, 1: POSITIVE_CODE}


def join_buckets(fingerprint: NDArray[np.uint64]) -> NDArray[np.intp]:
    """(n,) top 15 bits: number of the hash that holds the entry."""
    buckets: NDArray[np.intp] = (fingerprint >> _BUCKET_SHIFT).astype(np.intp)
    return buckets


def time_bytes(value: NDArray[np.int64]) -> NDArray[np.uint8]:
    """(n, 6) little-endian bytes of values below 2^48."""
    columns: NDArray[np.uint8] = value.astype("<i8").view(np.uint8).reshape(-1, 8)
    return columns[:, :6]


def fingerprint_bytes(fingerprint: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """(n, 8) big-endian bytes; the last 7 are the field of the entry."""
    return fingerprint.astype(">u8").view(np.uint8).reshape(-1, 8)


def joins(version: Version, score_time_ms: int, horizon_ms: int) -> bool:
    """Whether the label is one of a score at that time."""
    return max(version.from_ms, version.time_ms - horizon_ms) <= score_time_ms < version.time_ms


def outcome(version: Version, score_times_ms: Iterable[int], horizon_ms: int) -> Outcome:
    """Of a label whose id has these predictions."""
    found = Outcome.UNSCORED
    for time in score_times_ms:
        if joins(version, time, horizon_ms):
            return Outcome.MATCHED
        if time >= version.time_ms:
            found = Outcome.LEAKED
        elif found is Outcome.UNSCORED:
            found = Outcome.BEYOND_HORIZON
    return found


def best_label(versions: Iterable[Version], score_time_ms: int, horizon_ms: int) -> int:
    """Code of the version that a prediction at the time takes: the newest that joins, smaller code at equal times; 0
    for none."""
    joined = [(v.time_ms, -v.code) for v in versions if joins(v, score_time_ms, horizon_ms)]
    return -max(joined)[1] if joined else 0


def label_codes(
    entries: Sequence[bytes | None], event_time_ms: NDArray[np.int64], horizon_ms: int
) -> NDArray[np.uint8]:
    """Best label code (k,) of winners with score times (k,) from their entries. StateError where an entry is
    missing."""
    if None in entries:
        raise StateError(
            f"{entries.count(None)} predictions of the pane have no join entry: the shard's state is damaged"
        )
    usual = np.array([len(e) == USUAL_LENGTH for e in entries if e is not None], dtype=bool)
    codes = np.empty(len(entries), dtype=np.uint8)
    packed = np.frombuffer(b"".join(e for e in entries if e is not None and len(e) == USUAL_LENGTH), dtype=_USUAL)
    # The label code is in the two lowest bits of the first byte.
    codes[usual] = packed["packed"][:, 0] & 3
    for i in np.flatnonzero(~usual).tolist():
        entry = entries[i]
        assert entry is not None
        codes[i] = best_label(_versions(entry), int(event_time_ms[i]), horizon_ms)
    return codes


def _versions(entry: bytes) -> list[Version]:
    (predictions,) = struct.unpack_from("<H", entry, 1)
    width = 17 if entry[:1] == b"F" else 11
    versions = []
    for at in range(3 + 6 * predictions, len(entry), width):
        time, from_ms = (int.from_bytes(entry[i : i + 6], "little") for i in (at, at + 11))
        versions.append(Version(time, entry[at + 6], from_ms if width == 17 else 0))
    return versions
