"""The canonical text of event ids: what is given, nothing folded, nothing normalised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stream_calib.events.columns import ABSENT, Failures
from stream_calib.events.contracts import RejectReason
from stream_calib.events.messages import shown

MAX_ID_BYTES = 512
"""Longest id, in bytes of UTF-8."""

_MAX_ID_BITS = 1_704
"""An integer of more bits has more than 512 decimal digits."""


def canonical_id(value: Any) -> str | None:
    """The id's text: a string as it is, a JSON integer as decimal text; None for everything that cannot be an id."""
    if type(value) is int:
        value = str(value) if value.bit_length() <= _MAX_ID_BITS else None
    if type(value) is not str or not value or len(value) > MAX_ID_BYTES:
        return None
    try:
        return value if len(value.encode()) <= MAX_ID_BYTES else None
    except UnicodeEncodeError:
        return None  # an unpaired surrogate has no bytes, so no identity


def read_ids(values: Sequence[Any], path: str) -> tuple[list[str], Failures]:
    """The ids as text ("" where refused), and what is refused."""
    if set(map(type, values)) == {str} and min(map(len, values)) and max(map(len, values)) * 4 <= MAX_ID_BYTES:
        joined = "".join(values)
        if joined.isascii() or _is_encodable(joined):
            return list(values), {}
    ids = [canonical_id(value) for value in values]
    failures: Failures = {i: _refusal(values[i], path) for i, text in enumerate(ids) if text is None}
    return [text or "" for text in ids], failures


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refusal(value: Any, path: str) -> tuple[RejectReason, str]:
    if value is ABSENT:
        return RejectReason.ID_MISSING, f"{path} is missing; every record needs an event id"
    return (
        RejectReason.ID_INVALID,
        f"{path} is {shown(value)}; an id is a JSON integer, or text of 1-{MAX_ID_BYTES} bytes of valid UTF-8",
    )
