"""Which part of the data a unit belongs to, by a keyed hash of its id: what is fitted, audited, certified."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stream_calib.calibration.parameter_checks import check_whole
from stream_calib.errors import ConfigurationError, FitError, LengthMismatchError, TooFewRowsError

UNIT_BUCKETS = 20
FIT_BUCKETS = (*range(12), *range(16, 20))
"""As in refits, with those of the gate: no published map has to be beaten here."""
AUDIT_BUCKETS = range(12, 14)
CERTIFICATE_BUCKETS = range(14, 16)
"""Nothing is fitted to them or decided by them."""
FOLDS = 5
"""Of the fit buckets, for choices."""
_ENOUGH_UNITS = 50
"""With so many units, about 40 in the fit buckets, some fold is empty with a probability of 5 x .8^40, below .001."""


def unit_parts(
    unit_ids: ArrayLike | None, n: int, seed: int
) -> tuple[NDArray[np.intp], NDArray[np.uint8], NDArray[np.uint8]]:
    """Unit (n,), numbered from 0, bucket (n,) of 0 .. 19 and fold (n,) of 0 .. 4 of each row; equal ids share them.

    `unit_ids` (n,) of text or whole numbers; None: every row is a unit, whose id is its number. A unit is the text of
    its id: 1 and "1" in one list are one unit, whose bucket is that of 1 in a list of numbers. Bucket and fold are
    taken from a 64-bit keyed BLAKE2b of the id's text, or, for row numbers, from a SplitMix64 finaliser (Steele, Lea,
    Flood, "Fast splittable pseudorandom number generators", 2014), and independent of each other. They depend on the
    seed and the id alone, so a unit keeps its part when rows come and go. Raises LengthMismatchError, FitError (ids of
    another kind, or text that is no Unicode), ConfigurationError (a seed that is not a whole number of 0 .. 2^64 - 1).
    """
    check_whole("seed", seed, 0)
    if seed >= 2**64:
        raise ConfigurationError(f"seed = {seed}; it is a whole number from 0 to 2^64 - 1")
    if unit_ids is None:
        unit = np.arange(n, dtype=np.intp)
        fingerprint = _mixed(unit.astype(np.uint64) + _mixed(np.array([seed], dtype=np.uint64)))
    else:
        ids = _ids(unit_ids)
        if ids.shape != (n,):
            raise LengthMismatchError(f"unit ids {ids.shape} for {n} rows; give one id a row")
        if ids.dtype.kind not in "iuUO" or (ids.dtype.kind == "O" and not all(isinstance(i, str) for i in ids)):
            raise FitError(f"unit ids of dtype {ids.dtype}; give text or whole numbers, without gaps")
        distinct, number = np.unique(ids, return_inverse=True)
        unit = number.reshape(-1).astype(np.intp)
        fingerprint = _fingerprints(map(str, distinct.tolist()), int(seed))[unit]
    bucket = (fingerprint % np.uint64(UNIT_BUCKETS)).astype(np.uint8)
    fold = (fingerprint // np.uint64(UNIT_BUCKETS) % np.uint64(FOLDS)).astype(np.uint8)
    return unit, bucket, fold


def in_buckets(bucket: NDArray[np.uint8], buckets: Collection[int]) -> NDArray[np.bool_]:
    """(n,) whether each row's bucket is one of these."""
    chosen = np.zeros(UNIT_BUCKETS, dtype=np.bool_)
    chosen[list(buckets)] = True
    return chosen[bucket]


def _fingerprints(texts: Iterable[str], seed: int) -> NDArray[np.uint64]:
    keyed = blake2b(digest_size=8, key=seed.to_bytes(8, "little"))
    digests = []
    for text in texts:
        state = keyed.copy()  # cheaper than a new keyed state for each text
        state.update(_encoded(text))
        digests.append(state.digest())
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def check_folds(unit: NDArray[np.intp], fold: NDArray[np.uint8], used: NDArray[np.bool_]) -> None:
    """Raises TooFewRowsError where a fold has none of the used rows (n,)."""
    filled, units = len(np.unique(fold[used])), len(np.unique(unit[used]))
    if filled < FOLDS:
        raise TooFewRowsError(
            f"{units} units in the fit buckets fill {filled} of {FOLDS} folds; give {_ENOUGH_UNITS} units or more in "
            "all, or leave unit_ids out if rows are independent"
        )


def _ids(given: ArrayLike) -> NDArray[Any]:
    try:
        return np.asarray(given)
    except ValueError as error:
        raise FitError("unit ids are lists of several lengths; give one text or whole number a row") from error


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise FitError(
            f"the unit id {text!r} holds half of a surrogate pair, so it is no Unicode text; decode ids as UTF-8"
        ) from error


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = values * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)), dtype=np.uint64)
