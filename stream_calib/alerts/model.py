"""The alert event: an alert opens once, may be updated, and closes once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, ValidationError

from stream_calib.errors import StateError
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.canonical import canonical_json, content_id

AlertKind: TypeAlias = Literal[
    "psi",
    "residual",
    "residual_page",
    "label_outage",
    "label_selection",
    "refit_asked",
    "refit_published",
    "refit_refused",
    "refit_failed",
    "refit_held",
    "rolled_back",
    "snapshot_too_old",
    "input_gap",
    "watermark_stalled",
    "no_scores",
    "lag",
    "rejected_rate",
    "redis_writes_lost",
    "late_labels",
    "vocabulary",
]
AlertState: TypeAlias = Literal["open", "update", "close"]
Severity: TypeAlias = Literal["info", "warning", "critical"]

SEVERITY: dict[AlertKind, Severity] = {
    "psi": "warning",
    "residual": "warning",
    "residual_page": "critical",
    "label_outage": "critical",
    "label_selection": "warning",
    "refit_asked": "info",
    "refit_published": "info",
    "refit_refused": "info",
    "refit_failed": "warning",
    "refit_held": "warning",
    "rolled_back": "warning",
    "snapshot_too_old": "warning",
    "input_gap": "critical",
    "watermark_stalled": "warning",
    "no_scores": "critical",
    "lag": "warning",
    "rejected_rate": "warning",
    "redis_writes_lost": "warning",
    "late_labels": "warning",
    "vocabulary": "warning",
}


class Alert(BaseModel):
    """One event of an alert's life. A receiver that sees an event twice (delivery is at least once) knows it by
    `id`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: str
    """Hash of (model key, generation, kind, state, pane): never random, so live and replay agree."""
    dedup_key: str
    """The same for all events of one alert, and whenever it opens again."""
    kind: AlertKind
    severity: Severity
    state: AlertState
    model: str
    model_version: str
    pane: int
    """The pane whose decision, or settlement, caused the event."""
    since_ms: int
    """Event time, epoch milliseconds, at which the first pane of the alert begins."""
    evidence: dict[str, Any]
    diagnosis: str

    def encode(self) -> bytes:
        """Canonical JSON."""
        return canonical_json(self.model_dump(mode="json"))

    @classmethod
    def decode(cls, raw: bytes) -> Alert:
        """Raises StateError where the bytes are no alert."""
        try:
            return cls.model_validate_json(raw)
        except ValidationError as error:
            raise StateError(f"entry of the alert outbox cannot be read ({error}): {raw[:200]!r}") from error


def make_alert(
    key: ModelKey,
    generation: str,
    kind: AlertKind,
    state: AlertState,
    *,
    pane: int,
    since_ms: int,
    diagnosis: str,
    evidence: dict[str, Any] | None = None,
) -> Alert:
    """An alert of a decided pane, or of a settlement as of it. `evidence` holds plain values."""
    identity = (generation, kind, state, pane)
    return alert_of(key, kind, state, identity, pane=pane, since_ms=since_ms, diagnosis=diagnosis, evidence=evidence)


def alert_of(
    key: ModelKey,
    kind: AlertKind,
    state: AlertState,
    identity: Sequence[str | int],
    *,
    subject: str = "",
    pane: int,
    since_ms: int,
    diagnosis: str,
    evidence: dict[str, Any] | None = None,
) -> Alert:
    """The alert with its ids and severity filled in. `identity`: what tells this event from all others of the key;
    `subject`: which of the key's alerts of the kind it is, where there are several. `evidence` holds plain values."""
    return Alert(
        id=content_id(*key, *identity),
        dedup_key=f"{key}:{kind}:{subject}" if subject else f"{key}:{kind}",
        kind=kind,
        severity=SEVERITY[kind],
        state=state,
        model=key.model,
        model_version=key.version,
        pane=pane,
        since_ms=since_ms,
        evidence=evidence or {},
        diagnosis=diagnosis,
    )
