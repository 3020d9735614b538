"""Alerts that are open or closed by themselves, outside of the decisions of panes.

A field of the state says what was told of one last: `<times it has opened>:<since when, epoch milliseconds>`, without
the time while it is closed; where it was opened with news, then `:<times it was updated>:<hash of the news>`. It
changes in one commit with the event in the outbox, so each event is there once, whoever sees the change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from stream_calib.alerts.model import Alert, AlertKind, AlertState, alert_of
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.canonical import content_id


class Told(NamedTuple):
    """What was told last."""

    times: int
    """How often it has opened so far."""
    since_ms: int | None
    """Since when it is open, epoch milliseconds; None while it is closed."""
    updates: int = 0
    """Since it opened."""
    news: str = ""
    """Hash of the news of the last event; "" where it had none."""


def told_of(field: str | None) -> Told:
    """As the field of the alert says."""
    times, since_ms, updates, news = [*(field or "0:").split(":"), "", ""][:4]
    return Told(int(times), int(since_ms) if since_ms else None, int(updates or 0), news)


def hash_of(news: str) -> str:
    """As it stands in the field."""
    return content_id(news)[:12] if news else ""


class StandingAlert:
    """One of a scope's alerts of a kind. Its events are made here, so that they have the same form everywhere."""

    def __init__(
        self,
        scope: ModelKey,
        kind: AlertKind,
        pane_ms: int,
        *,
        generation: str | None = None,
        subject: str = "",
    ) -> None:
        """`scope`: a model key, or the deployment. `generation`: of the model key. `subject`: which alert of the kind
        it is, where the scope has several."""
        self._scope, self._kind, self._pane_ms = scope, kind, pane_ms
        self._of = () if generation is None else (generation,)
        self._subject = subject

    def event(
        self,
        told: Told,
        state: AlertState,
        since_ms: int,
        diagnosis: str,
        evidence: Mapping[str, Any],
        news: str = "",
    ) -> tuple[str, Alert]:
        """The field after the event, and the event. `told`: what was told before. `since_ms` is that of an alert that
        opens; one that is open keeps its own."""
        if state == "open":
            after = Told(told.times + 1, since_ms, 0, hash_of(news))
        elif state == "update":
            after = told._replace(updates=told.updates + 1, news=hash_of(news))
        else:
            after = Told(told.times, None)
        since_ms = since_ms if state == "open" else told.since_ms or 0
        subject = (self._subject,) if self._subject else ()
        updates = (after.updates,) if state == "update" else ()
        alert = alert_of(
            self._scope,
            self._kind,
            state,
            # With the time: a state that lost its last writes counts openings anew, and another one is no repeat.
            (*self._of, self._kind, state, *subject, after.times, since_ms, *updates),
            subject=self._subject,
            pane=since_ms // self._pane_ms,
            since_ms=since_ms,
            diagnosis=diagnosis,
            evidence=dict(evidence),
        )
        return _field_of(after), alert


def _field_of(told: Told) -> str:
    since = "" if told.since_ms is None else str(told.since_ms)
    news = f":{told.updates}:{told.news}" if told.news else ""
    return f"{told.times}:{since}{news}"
