"""Figures of stored documents: rounded, so that they do not depend on the last bits of a sum."""

from __future__ import annotations

FIGURE_DIGITS = 9


def rounded_figure(value: float, digits: int = FIGURE_DIGITS) -> float:
    """To so many significant digits; -0.0 becomes 0.0."""
    return float(f"{value:.{digits}g}") + 0.0
