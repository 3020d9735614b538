"""What a step says of alerts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class AlertChange:
    """An alert opens, goes on with news, or closes."""

    kind: Literal["psi", "residual", "residual_page", "label_outage", "label_selection", "vocabulary"]
    state: Literal["open", "update", "close"]
    since_pane: int
    diagnosis: str
    evidence: dict[str, Any] = field(default_factory=dict)
    """Plain values."""
