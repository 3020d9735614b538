"""Messages and hooks for tests of what brings alerts to people."""

from __future__ import annotations

from typing import Any

from stream_calib.alerts.hooks.port import Message
from stream_calib.alerts.model import Alert, AlertKind, AlertState, make_alert
from stream_calib.config_alerts import HookSection
from stream_calib.events.contracts import ModelKey

KEY = ModelKey("churn", "3")
SIGNING_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
"""The one of the examples of Standard Webhooks."""


def alert(kind: AlertKind = "label_outage", state: AlertState = "open", pane: int = 380_000, **changed: Any) -> Alert:
    given: dict[str, Any] = {
        "since_ms": pane * 3_600_000,
        "diagnosis": "no labels for three panes",
        "evidence": {"missing_winners": 1_200, "share": 0.98765432},
    }
    return make_alert(KEY, "generation", kind, state, pane=pane, **{**given, **changed})


def message(*alerts: Alert, **changed: Any) -> Message:
    return Message(alerts or [alert()], **changed)


def hook(kind: str, **settings: Any) -> HookSection:
    """As the file says it."""
    return HookSection.model_validate({"name": "ops", "kind": kind, **settings})
