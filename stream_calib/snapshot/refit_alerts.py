"""Alerts about refits.

`refit_failed` and `refit_refused` are opened by the first such settlement, and closed by the next candidate that passes
its gate. `refit_held` is open as long as a candidate waits for somebody: opened by the first one, updated by each
further one, closed when one is published or the last one is rejected. `refit_asked` is open from a request to its
answer. `refit_published` is an event and no state: it opens and closes at once.
"""

from __future__ import annotations

from typing import Any

from stream_calib.alerts.model import AlertKind, AlertState, alert_of, make_alert
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.decision_log import MOST_HELD, DecisionLog, Request
from stream_calib.snapshot.report import GateReport, RefitReport

_KINDS: dict[str, AlertKind] = {"refused": "refit_refused", "failed": "refit_failed"}


class RefitAlerts:
    """Encoded alert events of one model key."""

    def __init__(self, key: ModelKey, generation: str, pane_ms: int) -> None:
        self._key, self._generation, self._pane_ms = key, generation, pane_ms

    def asked(self, request: Request) -> bytes:
        """By the request, with its pane."""
        diagnosis = f"a {request.kind} refit was asked for ({request.reason}); nothing more is decided until its answer"
        return self._event("refit_asked", "open", request.pane, request.pane, diagnosis, _asked(request))

    def answered(self, request: Request, outcome: str, pane: int) -> bytes:
        """By the answer to the request, or its expiry, at `pane`."""
        diagnosis = f"the {request.kind} refit ({request.reason}): {outcome}"
        evidence = _asked(request) | {"outcome": outcome}
        return self._event("refit_asked", "close", pane, request.pane, diagnosis, evidence)

    def published(self, version: str, before: str | None, gate: GateReport, pane: int, why: str) -> list[bytes]:
        """By the publication of `version`, which passed `gate`, at `pane` in place of `before`."""
        what = f"in place of {before}" if before else "the first one"
        diagnosis = (
            f"{version} is served from now on, {what} ({why}); `stream-calib snapshot diff` shows what it changes"
        )
        states: tuple[AlertState, ...] = ("open", "close")
        return [
            alert_of(
                self._key,
                "refit_published",
                state,
                (self._generation, "refit_published", state, version),
                pane=pane,
                since_ms=pane * self._pane_ms,
                diagnosis=diagnosis,
                evidence={"version": version, "before": before, "why": why} | gate.alert_evidence(),
            ).encode()
            for state in states
        ]

    def opened_by(self, report: RefitReport, log: DecisionLog, pane: int) -> list[bytes]:
        """By the settlement of `report` at `pane`; none where the alert is open already."""
        kind = _KINDS.get(report.outcome)
        if kind is None or kind in log.open_failures:
            return []
        diagnosis = f"the {report.kind} refit ({report.reason}): {report.outcome}, {report.detail}"
        return [self._event(kind, "open", pane, report.pane, diagnosis, report.alert_evidence())]

    def held(self, report: RefitReport, version: str, log: DecisionLog, pane: int) -> list[bytes]:
        """By the candidate of `report` that is held at `pane` as `version`."""
        spared = log.held_beyond(report.kind, MOST_HELD - 1) is None
        evidence = report.alert_evidence() | {"version": version, "held": len(log.held) + spared}
        if report.gate is not None and report.gate.gain is not None:
            evidence |= {"gain": report.gate.gain, "gain_lower": report.gate.gain_lower, "rows": report.gate.rows}
        state: AlertState = "open" if log.held_since is None else "update"
        since = report.pane if log.held_since is None else log.held_since
        diagnosis = (
            f"the {report.kind} refit ({report.reason}) passed its gate and waits: `stream-calib snapshot approve"
            f" {version}`, or `snapshot reject`"
        )
        passed = self._failures_closed(log, pane, "a refit passed its gate")
        return [*passed, self._held(state, log, pane, since, diagnosis, evidence)]

    def closed_by_publication(self, log: DecisionLog, pane: int) -> list[bytes]:
        """By a publication at `pane`: one for each alert that is open."""
        closed = self._failures_closed(log, pane, "a refit was published")
        if log.held_since is not None:
            closed.append(self._held("close", log, pane, log.held_since, "a refit was published"))
        return closed

    def closed_by_rejection(self, log: DecisionLog, version: str, pane: int) -> list[bytes]:
        """By the rejection of the held `version` at `pane`; none while others are held."""
        if log.held_since is None or log.held.keys() - {version}:
            return []
        return [self._held("close", log, pane, log.held_since, f"{version} was rejected")]

    def _failures_closed(self, log: DecisionLog, pane: int, diagnosis: str) -> list[bytes]:
        return [
            self._event(kind, "close", pane, log.open_failures[kind], diagnosis)
            for kind in _KINDS.values()
            if kind in log.open_failures
        ]

    def _held(
        self,
        state: AlertState,
        log: DecisionLog,
        pane: int,
        since_pane: int,
        diagnosis: str,
        evidence: dict[str, Any] | None = None,
    ) -> bytes:
        """By the next entry of the log: a candidate may be rejected and another approved before a pane is decided."""
        return alert_of(
            self._key,
            "refit_held",
            state,
            (self._generation, "refit_held", state, pane, log.length),
            pane=pane,
            since_ms=since_pane * self._pane_ms,
            diagnosis=diagnosis,
            evidence=evidence,
        ).encode()

    def _event(
        self,
        kind: AlertKind,
        state: AlertState,
        pane: int,
        since_pane: int,
        diagnosis: str,
        evidence: dict[str, Any] | None = None,
    ) -> bytes:
        return make_alert(
            self._key,
            self._generation,
            kind,
            state,
            pane=pane,
            since_ms=since_pane * self._pane_ms,
            diagnosis=diagnosis,
            evidence=evidence,
        ).encode()


def _asked(request: Request) -> dict[str, Any]:
    return {"request_id": request.id, "kind": request.kind, "reason": request.reason, "parent": request.parent}
