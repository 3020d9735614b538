"""The Grafana board's queries, as Grafana would send them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

BOARD = Path(__file__).parents[2] / "deploy/grafana/dashboards/stream-calib.json"


class Query(NamedTuple):
    panel: str
    expression: str


def board() -> dict[str, Any]:
    return dict(json.loads(BOARD.read_text(encoding="utf-8")))


def queries(window: str) -> list[Query]:
    """All queries, with `window` (as "1m") for the ranges that a viewer chooses, and all models."""
    values = {"$__rate_interval": window, "$__range": window, "$window": window, "$model": ".*"}
    found = []
    for panel in board()["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"]
            for name, value in values.items():
                expression = expression.replace(name, value)
            found.append(Query(panel["title"], expression))
    return found
