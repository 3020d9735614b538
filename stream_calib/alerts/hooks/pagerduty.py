"""PagerDuty, by its events API v2 (developer.pagerduty.com/docs/events-api-v2-overview).

Not through Apprise, which only triggers, without our deduplication key: an alert that is over would stay open.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stream_calib.alerts.hooks.addresses import HttpAddress, http_address
from stream_calib.alerts.hooks.http_client import HttpClient
from stream_calib.alerts.hooks.port import Delivery, Message
from stream_calib.alerts.hooks.texts import headline, runbook_link, utc, whose
from stream_calib.alerts.model import Alert
from stream_calib.config_alerts import HookSection
from stream_calib.config_secrets import read_secret
from stream_calib.errors import ConfigurationError
from stream_calib.snapshot.canonical import canonical_json, content_id

_EVENTS_API = "https://events.pagerduty.com/v2/enqueue"
_MAX_KEY, _MAX_SUMMARY = 255, 1_024
"""Characters that the API takes."""


class PagerDutyHook:
    """An incident for each deduplication key: triggered, acknowledged, resolved."""

    def __init__(self, hook: HookSection, runbook_url: str, client: HttpClient) -> None:
        """Raises ConfigurationError where the key, or the address where one is given, cannot be used."""
        self._hook, self._runbook_url, self._client = hook, runbook_url, client
        self._taken: dict[str, dict[str, Any]] = {}
        """Of messages that were taken in part: deduplication key -> the last event of it that PagerDuty has."""
        self._address()
        self._key()

    @property
    def name(self) -> str:
        return self._hook.name

    def send(self, message: Message) -> Delivery:
        """All events of the message that fit into the timeout; at the next attempt those that are left."""
        try:
            address, key = self._address(), self._key()
        except ConfigurationError as error:
            return Delivery("retry", str(error))
        deadline, events = self._client.deadline(), list(_events(message, self._runbook_url))
        # By what an event says, not by its place: the next message may hold others, and other news of the same alert.
        for event in [event for event in events if self._taken.get(event["dedup_key"]) != event]:
            body = canonical_json({"routing_key": key, **event})
            delivery = self._client.post(address, {"Content-Type": "application/json"}, body, deadline, [key])
            if delivery.outcome != "delivered":
                return delivery
            self._taken[event["dedup_key"]] = event
        for event in events:
            self._taken.pop(event["dedup_key"], None)
        return Delivery("delivered", f"PagerDuty took {len(events)} event{'s' if len(events) != 1 else ''}")

    def close(self) -> None:
        """Nothing is kept between attempts that PagerDuty would miss."""

    def _address(self) -> HttpAddress:
        setting = f"alerts.hooks.{self.name}.url"
        text = _EVENTS_API if self._hook.url is None else read_secret(self._hook.url, setting)
        return http_address(text, setting)

    def _key(self) -> str:
        setting = f"alerts.hooks.{self.name}.secrets"
        (place,) = self._hook.secrets
        key = read_secret(place, setting)
        if not key:
            raise ConfigurationError(f"{setting}: what is at {place} is empty; put the service's integration key there")
        return key


def _events(message: Message, runbook_url: str) -> Iterator[dict[str, Any]]:
    """Without the routing key. Of each deduplication key what was last, so that a summary makes no incident that is
    over."""
    last = {alert.dedup_key: alert for alert in message.alerts}
    for alert in last.values():
        key = {"dedup_key": _dedup_key(alert, message.is_test)}
        if message.acknowledged_by:
            yield {"event_action": "acknowledge", **key}
        elif alert.state == "close" and not message.is_test:
            yield {"event_action": "resolve", **key}
        else:
            yield {"event_action": "trigger", **key, **_incident(alert, message.is_test, runbook_url)}
            if message.is_test:
                yield {"event_action": "resolve", **key}


def _incident(alert: Alert, is_test: bool, runbook_url: str) -> dict[str, Any]:
    owner, link = whose(alert), runbook_link(alert, runbook_url)
    links = [{"href": link, "text": "What to do"}] if link.startswith(("https://", "http://")) else []
    return {
        "client": "stream-calib",
        "links": links,
        "payload": {
            "summary": (("TEST " if is_test else "") + headline(alert))[:_MAX_SUMMARY],
            "source": owner,
            "severity": alert.severity,
            "component": owner,
            "class": alert.kind,
            "custom_details": {
                "diagnosis": alert.diagnosis,
                "since": utc(alert.since_ms),
                "what to do": link,
                "alert": alert.id,
                **alert.evidence,
            },
        },
    }


def _dedup_key(alert: Alert, is_test: bool) -> str:
    key = f"test:{alert.dedup_key}" if is_test else alert.dedup_key
    return key if len(key) <= _MAX_KEY else content_id(key)
