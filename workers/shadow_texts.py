"""The shadow beside what is served, for people."""

from __future__ import annotations

from stream_calib.refit.shadow_evaluation import ShadowFigures
from workers.time_text import utc_of_pane


def shadow_rows(figures: ShadowFigures, pane_ms: int) -> list[tuple[str, str]]:
    """Rows of a table: what it was evaluated on, and the figures of both."""
    if figures.last_pane < figures.first_pane:
        return [("evaluated on", "nothing yet: the pane behind those that it was made from has not been decided")]
    begin, end = utc_of_pane(figures.first_pane, pane_ms), utc_of_pane(figures.last_pane + 1, pane_ms)
    without = f", {figures.incomplete_panes} panes without their labels left out" if figures.incomplete_panes else ""
    return [
        ("evaluated on", f"{begin} until {end}: {figures.rows:,} labelled rows{without}"),
        ("log-loss", _against(figures.loss_served, figures.loss_shadow, ".5f")),
        ("gain a row", gain_text(figures)),
        ("worst group error", _against(figures.worst_group_served, figures.worst_group_shadow, ".2f", " %")),
    ]


def gain_text(figures: ShadowFigures) -> str:
    """As `+0.00120 (standard error 0.00040 by days)`."""
    if figures.gain is None:
        return "-"
    error = "" if figures.gain_error is None else f" (standard error {figures.gain_error:.5f} by days)"
    return f"{figures.gain:+.5f}{error}"


def _against(served: float | None, shadow: float | None, form: str, unit: str = "") -> str:
    if served is None or shadow is None:
        return "-"
    return f"{shadow:{form}}{unit} by the shadow, {served:{form}}{unit} by what was served"
