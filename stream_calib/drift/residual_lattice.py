"""How log M is kept: multiples of 2^-16 between -128 and 128, so that a state is few bytes and exactly its text.

Rounding is down, which costs at most 2^-16 of evidence a pane and never makes an alarm. M below e^-128 is 0 (n is added
to it, and n is at least 1), M above e^128 is cut there.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream_calib.errors import StateFormatError

_ONE = 1 << 16
_ZERO = -(1 << 23)
"""Stands for M = 0."""
_LARGEST = (1 << 23) - 1
_BYTES = 3
"""Of a value: little-endian, two's complement."""

Floats = NDArray[np.float64]


def round_down(log_m: Floats) -> Floats:
    """The next kept value that is not larger; any shape."""
    steps = np.minimum(np.floor(log_m * _ONE), _LARGEST)
    return np.where(steps > _ZERO, steps / _ONE, -np.inf)


def encode(names: Sequence[str], log_m: Floats) -> str:
    """A JSON list: base64 of the values (cells, shifts), row by row, and the names (cells,) of the rows.

    Raises ValueError for values that are not kept ones.
    """
    if not np.array_equal(round_down(log_m), log_m):
        raise ValueError("log M is not a multiple of 2^-16 between -128 and 128: `advance` rounds it before it is kept")
    steps = np.where(np.isfinite(log_m), log_m * _ONE, _ZERO).astype("<i4")
    values = steps.reshape(-1, 1).view(np.uint8)[:, :_BYTES].tobytes()
    return json.dumps([base64.b64encode(values).decode(), *names], ensure_ascii=False, separators=(",", ":"))


def decode(text: str, shifts: int) -> tuple[tuple[str, ...], Floats]:
    """What `encode` was given. Raises StateFormatError where the text is no such list, or lengths do not fit."""
    try:
        content, *names = json.loads(text)
        values = np.frombuffer(base64.b64decode(content, validate=True), np.uint8)
    except (ValueError, TypeError, binascii.Error) as error:
        raise StateFormatError(f"stored residual detectors cannot be read ({error}): {text[:80]!r}") from error
    if len(values) != len(names) * shifts * _BYTES or not all(isinstance(name, str) for name in names):
        raise StateFormatError(
            f"stored residual detectors hold {len(values)} bytes for {len(names)} cells, not {shifts * _BYTES} for each"
        )
    padded = np.zeros((len(values) // _BYTES, 4), np.uint8)
    padded[:, 1:] = values.reshape(-1, _BYTES)
    steps = (padded.view("<i4")[:, 0] >> 8).reshape(-1, shifts)
    return tuple(names), np.where(steps == _ZERO, -np.inf, steps / _ONE)
