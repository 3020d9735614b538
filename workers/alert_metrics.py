"""What the alert role exports of one model key: which alerts are open, and how many events wait to be delivered."""

from __future__ import annotations

from collections import Counter

from stream_calib import metrics
from stream_calib.alerts.model import SEVERITY, Alert, AlertKind
from stream_calib.windows.state_store import StateStore

_EVERY_MS = 1_000


class AlertMetrics:
    """Observed by who holds the alert lease, withdrawn when it is lost."""

    def __init__(self, model: str, state: StateStore) -> None:
        """`model`: the model key as it is written."""
        self._model, self._state = model, state
        self._open: dict[str, AlertKind] = {}
        """Deduplication key -> kind."""
        self._read = self._sent = self._at_ms = 0

    def observe(self, now_ms: int) -> None:
        """Once a second, reads what is new in the outbox. Raises StateUnavailableError."""
        if now_ms - self._at_ms < _EVERY_MS:
            return
        self._at_ms = now_ms
        sent = int(self._state.read(("outbox_sent",))["outbox_sent"] or 0)
        if sent < self._sent:
            self._open.clear()  # the state was rolled back, or wiped
            self._read = 0
        self._sent = sent
        for raw in self._state.entries("outbox", self._read):
            alert = Alert.decode(raw)
            self._read += 1
            if alert.state == "close":
                self._open.pop(alert.dedup_key, None)
            else:
                self._open[alert.dedup_key] = alert.kind
        kinds = Counter(self._open.values())
        for kind in SEVERITY:
            metrics.ALERTS_OPEN.labels(self._model, kind).set(kinds[kind])
        metrics.OUTBOX_LENGTH.labels(self._model).set(max(0, self._read - sent))

    def withdraw(self) -> None:
        """The lease is another process's now."""
        if not self._at_ms:
            return
        self._at_ms = 0
        for kind in SEVERITY:
            metrics.ALERTS_OPEN.remove(self._model, kind)
        metrics.OUTBOX_LENGTH.remove(self._model)
