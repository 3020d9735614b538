"""What a message says to people: as plain text, and as HTML."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from stream_calib.alerts.hooks.port import Message
from stream_calib.alerts.model import Alert, AlertKind, Severity
from stream_calib.alerts.severity import RANK
from stream_calib.events.contracts import ModelKey
from stream_calib.windows.model_registry import deployment_scope

WHAT: dict[AlertKind, str] = {
    "psi": "the distribution of scores has moved",
    "residual": "a group is miscalibrated",
    "residual_page": "a group is miscalibrated, beyond all doubt",
    "label_outage": "labels are missing",
    "label_selection": "the scores that have labels are not like the others",
    "refit_asked": "a refit was asked for",
    "refit_published": "a refit was published",
    "refit_refused": "the gate refused a refit",
    "refit_failed": "a refit failed",
    "refit_held": "a refit waits for approval",
    "rolled_back": "the snapshot was rolled back",
    "snapshot_too_old": "the snapshot is too old",
    "input_gap": "records were lost before they were read",
    "watermark_stalled": "event time stands still",
    "no_scores": "no scores come in",
    "lag": "records wait to be read",
    "rejected_rate": "many records are rejected",
    "redis_writes_lost": "Redis has lost writes",
    "late_labels": "labels come too late to count",
    "vocabulary": "an attribute has too many values",
}
"""Kind -> what has happened, in a few words."""

_ALERTS_SHOWN = 20
_ITEMS_SHOWN = 5
_VALUE_CHARACTERS = 300
_EPOCH_MS = 10**11
"""Times in milliseconds are larger, durations smaller (March 1973, three years)."""


class Paragraph(NamedTuple):
    """Of one alert."""

    heading: str
    """Empty where the title says it."""
    text: str
    facts: list[tuple[str, str]]
    link: str


def title(message: Message) -> str:
    """One line."""
    return " ".join(_title(message).split())


def _title(message: Message) -> str:
    prefix = "TEST " if message.is_test else ""
    if message.acknowledged_by:
        prefix += f"acknowledged by {message.acknowledged_by}: "
    if len({alert.dedup_key for alert in message.alerts}) == 1:
        return prefix + headline(message.alerts[-1])
    owners = sorted({whose(alert) for alert in message.alerts})
    whom = owners[0] if len(owners) == 1 else f"{len(owners)} models"
    return f"{prefix}{len(message.alerts)} alert events of {whom}, up to {worst(message)}"


def headline(alert: Alert) -> str:
    """What has happened, whose, and how bad it is: of one alert, on one line."""
    state = {"open": alert.severity, "update": f"{alert.severity}, update", "close": "over"}[alert.state]
    return f"[{state}] {whose(alert)}: {WHAT[alert.kind]}"


def whose(alert: Alert) -> str:
    """The model key, or the deployment."""
    is_of_all = ModelKey(alert.model, alert.model_version) == deployment_scope(alert.model_version)
    return f"deployment {alert.model_version}" if is_of_all else f"{alert.model}/{alert.model_version}"


def worst(message: Message) -> Severity:
    return max((alert.severity for alert in message.alerts), key=RANK.__getitem__)


def runbook_link(alert: Alert, runbook_url: str) -> str:
    """The section of the run book that says what to do."""
    return f"{runbook_url}#{alert.kind}"


def plain(message: Message, runbook_url: str) -> str:
    """For chats, terminals and text messages."""
    parts = []
    for heading, text, facts, link in _paragraphs(message, runbook_url):
        lines = [heading, text, *(f"  {name}: {value}" for name, value in facts), f"What to do: {link}"]
        parts.append("\n".join(line for line in lines if line))
    return "\n\n".join([*parts, *_more(message)])


def as_html(message: Message, runbook_url: str) -> str:
    """For mail."""
    parts = []
    for paragraph in _paragraphs(message, runbook_url):
        heading, text, link = (html.escape(part) for part in (paragraph.heading, paragraph.text, paragraph.link))
        title_of = f"<h3>{heading}</h3>" if heading else ""
        rows = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{html.escape(value)}</td></tr>" for name, value in paragraph.facts
        )
        # A link that leads nowhere from where it is read (a page of the project's documentation) is only named.
        to_do = f'<a href="{link}">{link}</a>' if re.match(r"https?://", paragraph.link) else link
        parts.append(f"{title_of}<p>{text}</p><table>{rows}</table><p>What to do: {to_do}</p>")
    return "".join([*parts, *(f"<p>{html.escape(more)}</p>" for more in _more(message))])


def _paragraphs(message: Message, runbook_url: str) -> Iterator[Paragraph]:
    """Of the newest alerts; the newest last."""
    for alert in message.alerts[-_ALERTS_SHOWN:]:
        facts = [
            (("of", whose(alert))),
            ("since", f"{utc(alert.since_ms)} (event time)"),
            *((_words(name), _value(name, value)) for name, value in alert.evidence.items()),
            ("alert", f"{alert.dedup_key} ({alert.id})"),
        ]
        diagnosis = alert.diagnosis[:1].upper() + alert.diagnosis[1:]
        heading = headline(alert) if len(message.alerts) > 1 else ""
        yield Paragraph(heading, diagnosis, facts, runbook_link(alert, runbook_url))


def _more(message: Message) -> list[str]:
    hidden = len(message.alerts) - _ALERTS_SHOWN
    return [f"And {hidden} older ones: stream-calib alerts list"] if hidden > 0 else []


def _words(name: str) -> str:
    return name.removesuffix("_ms").replace("_", " ")


def _value(name: str, value: Any) -> str:
    """In words, and so long at most that no message is a dump."""
    text = _told(name, value)
    return text if len(text) <= _VALUE_CHARACTERS else f"{text[:_VALUE_CHARACTERS]}..."


def _told(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return _enumerated([f"{_words(str(key))} {_told(str(key), inner)}" for key, inner in value.items()], ", ")
    if isinstance(value, (list, tuple)):
        return _enumerated([_told(name, inner) for inner in value], "; ")
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if name.endswith("_ms") and isinstance(value, (int, float)):
        return utc(value) if value >= _EPOCH_MS else f"{value / 1000:g} s"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _enumerated(items: list[str], separator: str) -> str:
    more = [f"and {len(items) - _ITEMS_SHOWN} more"] if len(items) > _ITEMS_SHOWN else []
    return separator.join([*items[:_ITEMS_SHOWN], *more]) or "none"


def utc(time_ms: float) -> str:
    """`2013-03-01 10:00 UTC` of epoch milliseconds."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(time_ms / 1000))
