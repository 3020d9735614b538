"""The hooks that a configuration names."""

from __future__ import annotations

import time
from collections.abc import Callable

from stream_calib.alerts.hooks.apprise_hook import AppriseHook
from stream_calib.alerts.hooks.command import CommandHook
from stream_calib.alerts.hooks.http_client import HttpClient
from stream_calib.alerts.hooks.pagerduty import PagerDutyHook
from stream_calib.alerts.hooks.port import Hook
from stream_calib.alerts.hooks.webhook import WebhookHook
from stream_calib.config_alerts import AlertsSection, HookSection


def open_hooks(alerts: AlertsSection, clock_s: Callable[[], float] = time.time) -> list[Hook]:
    """One for each `[[alerts.hooks]]`, in their order. Connects to nobody; the caller closes them.

    `clock_s`: epoch seconds. Raises ConfigurationError where a secret or a file of certificates cannot be read, or an
    address or secret is not of its form; the message does not show it.
    """
    return [_open(section, alerts.runbook_url, clock_s) for section in alerts.hooks]


def _open(section: HookSection, runbook_url: str, clock_s: Callable[[], float]) -> Hook:
    match section.kind:
        case "webhook":
            return WebhookHook(section, runbook_url, HttpClient(section, clock_s), clock_s)
        case "pagerduty":
            return PagerDutyHook(section, runbook_url, HttpClient(section, clock_s))
        case "apprise":
            return AppriseHook(section, runbook_url)
        case "command":
            return CommandHook(section, runbook_url)
