"""Figures of stored documents: rounded, so that they do not depend on the last bits of a sum."""

from __future__ import annotations

_DIGITS = 9


def rounded_figure(value: float) -> float:
    """Nine significant digits; -0.0 becomes 0.0."""
    return float(f"{value:.{_DIGITS}g}") + 0.0
