"""What is in an outbox."""

from __future__ import annotations

from stream_calib.alerts.model import Alert
from stream_calib.windows.state_store import StateStore

OF_EACH_REFIT = ("refit_asked", "refit_published")
"""Kinds that say of each refit that it was asked for, and that it was published."""


def events(state: StateStore) -> list[Alert]:
    """All of them, oldest first."""
    return [Alert.decode(raw) for raw in state.entries("outbox", 0)]


def alarms(state: StateStore) -> list[Alert]:
    """Those that say more than that refits go on."""
    return [event for event in events(state) if event.kind not in OF_EACH_REFIT]
