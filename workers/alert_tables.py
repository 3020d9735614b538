"""Tables of alerts and of silences, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from stream_calib.alerts.silence import Silence
from workers.alert_listing import handled
from workers.time_text import age, utc_minute


def covered(silence: Silence) -> str:
    """What it silences, in words."""
    what = "all alerts" if silence.kind is None else f"alerts {silence.kind}"
    return what if silence.model is None else f"{what} of {silence.model}"


def open_table(rows: Sequence[dict[str, Any]], now_ms: int) -> Table:
    """Of alerts that are open, as `open_rows` has them."""
    table = Table(title="Open alerts" if rows else "No alert is open", title_justify="left")
    for column in ("key", "severity", "since (UTC)", "diagnosis"):
        table.add_column(column, overflow="fold")
    for row in rows:
        said = "\n".join(filter(None, (row["diagnosis"], handled(row, now_ms))))
        table.add_row(row["dedup_key"], row["severity"], utc_minute(row["since_ms"]), said)
    return table


def event_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Of events, as `event_rows` has them."""
    table = Table(title="Events of alerts, oldest first of each model", title_justify="left")
    for column in ("key", "severity", "state", "pane", "diagnosis"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(row["dedup_key"], row["severity"], row["state"], str(row["pane"]), row["diagnosis"])
    return table


def silence_table(silences: Sequence[Silence], now_ms: int) -> Table:
    """Of silences that have not ended."""
    table = Table(title="Silences", title_justify="left")
    for column in ("number", "alerts", "until (UTC)", "for", "by", "reason"):
        table.add_column(column)
    for one in silences:
        left = age(one.until_ms - now_ms)
        table.add_row(str(one.id), covered(one), utc_minute(one.until_ms), left, one.actor, one.reason)
    return table
