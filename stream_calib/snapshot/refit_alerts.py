"""Alerts about refits: opened by the first settlement that failed or was refused, closed by the next publication."""

from __future__ import annotations

from stream_calib.alerts.model import AlertKind, make_alert
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.decision_log import DecisionLog
from stream_calib.snapshot.report import RefitReport

_KINDS: dict[str, AlertKind] = {"refused": "refit_refused", "failed": "refit_failed"}


class RefitAlerts:
    """Encoded alert events of one model key."""

    def __init__(self, key: ModelKey, generation: str, pane_ms: int) -> None:
        self._key, self._generation, self._pane_ms = key, generation, pane_ms

    def opened_by(self, report: RefitReport, log: DecisionLog, pane: int) -> list[bytes]:
        """By the settlement of `report` at `pane`; none where the alert is open already."""
        kind = _KINDS.get(report.outcome)
        if kind is None or kind in log.open_failures:
            return []
        alert = make_alert(
            self._key,
            self._generation,
            kind,
            "open",
            pane=pane,
            since_ms=report.pane * self._pane_ms,
            diagnosis=f"the {report.kind} refit ({report.reason}): {report.outcome}, {report.detail}",
            evidence={"request_id": report.request_id},
        )
        return [alert.encode()]

    def closed_by_publication(self, log: DecisionLog, pane: int) -> list[bytes]:
        """By a publication at `pane`: one for each alert that is open."""
        return [
            make_alert(
                self._key,
                self._generation,
                kind,
                "close",
                pane=pane,
                since_ms=log.open_failures[kind] * self._pane_ms,
                diagnosis="a refit was published",
            ).encode()
            for kind in _KINDS.values()
            if kind in log.open_failures
        ]
