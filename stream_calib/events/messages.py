"""How a bad value is shown in a reject's message."""

from __future__ import annotations

from typing import Any

_MAX_SHOWN = 60


def shown(value: Any) -> str:
    """The value as short ASCII text: safe to log, to encode and to put into a header, whatever it holds."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "an array"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and value.bit_length() > 200:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, str) and len(value) > _MAX_SHOWN:
        return f"{value[:_MAX_SHOWN]!a}... ({len(value)} characters)"
    return ascii(value)
