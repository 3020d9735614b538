"""Stable 64-bit identities of event ids, units and attribute values, and what is derived from them.

Fingerprints are keyed BLAKE2b of the UTF-8 text, so every process and every run agrees. Unit bucket, shard and sample
are taken from a fingerprint through SplitMix64 finalisers with different keys (Steele, Lea, Flood 2014), so they are
independent of each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from stream_calib.errors import ConfigurationError

UNIT_BUCKETS = 20
"""Number of disjoint parts of the units."""

_FINGERPRINT_KEY = b"stream-calib/id/1"
_SIGNATURE_KEY = b"stream-calib/signature/1"
_BUCKET_SALT = np.uint64(0x9AE16A3B2F90404F)
_SHARD_SALT = np.uint64(0xC3A5C85C97CB3127)
_SAMPLE_SALT = np.uint64(0xB492B66FBE98F273)


def fingerprints(texts: Iterable[str]) -> NDArray[np.uint64]:
    """8-byte fingerprints of the texts, (n,) uint64. The texts must be encodable as UTF-8."""
    return fingerprints_of_encoded(map(str.encode, texts))


def fingerprints_of_encoded(texts: Iterable[bytes]) -> NDArray[np.uint64]:
    """The same of texts as UTF-8."""
    keyed = blake2b(digest_size=8, key=_FINGERPRINT_KEY)
    digests = []
    for text in texts:
        state = keyed.copy()  # cheaper than a new keyed state for each text
        state.update(text)
        digests.append(state.digest())
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def signature_hash(values: Sequence[str]) -> int:
    """64-bit content hash of one tuple of attribute values; lengths are hashed too, so no two tuples run together."""
    state = blake2b(digest_size=8, key=_SIGNATURE_KEY)
    for value in values:
        encoded = value.encode()
        state.update(len(encoded).to_bytes(4, "little"))
        state.update(encoded)
    return int.from_bytes(state.digest(), "little")


def _mix(fingerprint: NDArray[np.uint64], salt: np.uint64) -> NDArray[np.uint64]:
    z = fingerprint ^ salt
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return mixed


def unit_buckets(unit_fingerprint: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """(n,) uint8 bucket of each unit, 0 .. UNIT_BUCKETS - 1."""
    buckets: NDArray[np.uint8] = (_mix(unit_fingerprint, _BUCKET_SALT) % np.uint64(UNIT_BUCKETS)).astype(np.uint8)
    return buckets


def shards(fingerprint: NDArray[np.uint64], count: int) -> NDArray[np.uint16]:
    """(n,) uint16 shard of each event id, 0 .. count - 1."""
    if count < 1:
        raise ConfigurationError(f"shards = {count}: at least 1 is needed")
    shard: NDArray[np.uint16] = (_mix(fingerprint, _SHARD_SALT) % np.uint64(count)).astype(np.uint16)
    return shard


def sampled(fingerprint: NDArray[np.uint64], rate: float) -> NDArray[np.bool_]:
    """(n,) whether each event id is in the sample of this rate, 0 < rate <= 1; an id stays in it at every larger rate.

    Raises ConfigurationError for another rate.
    """
    if not 0 < rate <= 1:
        raise ConfigurationError(f"sample_rate = {rate}: it must be above 0 and at most 1")
    if rate == 1:
        return np.ones(len(fingerprint), dtype=bool)
    chosen: NDArray[np.bool_] = _mix(fingerprint, _SAMPLE_SALT) < np.uint64(int(rate * 2**64))
    return chosen
