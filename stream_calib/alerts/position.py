"""Positions in the lists of an outbox's state, as its fields hold them."""

from __future__ import annotations

from collections.abc import Mapping

from stream_calib.errors import StateError


def position_of(fields: Mapping[str, str | None], name: str) -> int:
    """The position in a field of the outbox's state; 0 where there is none. Raises StateError where it is no number."""
    text = fields[name] or "0"
    if not text.isdecimal():
        raise StateError(f"the field {name} of an alert outbox holds {text!r}, and no position; set it to a number")
    return int(text)
