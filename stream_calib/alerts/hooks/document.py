"""A message for programs: the JSON that webhooks and commands are given."""

from __future__ import annotations

from stream_calib.alerts.hooks.port import Message
from stream_calib.alerts.hooks.texts import plain, runbook_link, title
from stream_calib.snapshot.canonical import canonical_json


def message_type(message: Message) -> str:
    """What a receiver can tell messages apart by."""
    if message.is_test:
        return "alert.test"
    if message.acknowledged_by:
        return "alert.acknowledged"
    return f"alert.{message.alerts[0].state}" if len(message.alerts) == 1 else "alert.summary"


def message_document(message: Message, runbook_url: str) -> bytes:
    """`{type, data: {id, title, text, acknowledged_by, alerts: [...]}}`, the same bytes at every attempt; each alert as
    on the topic `alerts`, with the link to its section of the run book."""
    return canonical_json(
        {
            "type": message_type(message),
            "data": {
                "id": message.id,
                "title": title(message),
                "text": plain(message, runbook_url),
                "acknowledged_by": message.acknowledged_by or None,
                "alerts": [
                    {**alert.model_dump(mode="json"), "runbook": runbook_link(alert, runbook_url)}
                    for alert in message.alerts
                ],
            },
        }
    )
