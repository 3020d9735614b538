"""Alerts that are open or closed by themselves, outside of the decisions of panes.

A field of the state says which: `<times it has opened>:<since when, epoch milliseconds>`, without the time while it is
closed. It changes in one commit with the event in the outbox, so each event is there once, whoever sees the change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stream_calib.alerts.model import Alert, AlertState
from stream_calib.windows.state_store import Commit, StateStore


def open_since_ms(field: str | None) -> int | None:
    """Since when the alert is open, epoch milliseconds; None while it is closed."""
    return _read(field)[1]


def change(
    state: StateStore,
    expect: Mapping[str, str | None],
    field: str,
    since_ms: int | None,
    event: Callable[[AlertState, int, int], Alert],
) -> bool:
    """Opens the alert as of `since_ms`, or closes it (None). False where another process has changed what `expect`
    holds: fields as they were read, `field` among them. `event`: the alert for its state, times opened and since when.
    """
    times, opened_ms = _read(expect[field])
    if since_ms is not None:
        after, alert = f"{times + 1}:{since_ms}", event("open", times + 1, since_ms)
    else:
        after, alert = f"{times}:", event("close", times, opened_ms or 0)
    return state.commit(Commit(expect, {field: after}, {"outbox": [alert.encode()]}))


def _read(field: str | None) -> tuple[int, int | None]:
    times, _, since_ms = (field or "0:").partition(":")
    return int(times), int(since_ms) if since_ms else None
