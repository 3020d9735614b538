"""Publishing, rolling back and reading snapshots of one model key over its StateStore.

Each change is one compare-and-set on the log's tip and on the last decided pane, and writes everything at once:
snapshot blob, pointer, history, decision log, report, alerts. So there is no moment at which a pointer names a blob
that is not there, and no "blob first" is needed. Where the tip or the cursor moved meanwhile, the change is checked
and tried again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from stream_calib.alerts.model import AlertKind, make_alert
from stream_calib.drift.psi import PsiReference
from stream_calib.errors import PublicationRefusedError, SnapshotError, StateError
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.canonical import canonical_json, sha256_hex
from stream_calib.snapshot.decision_log import DecisionLog, Entry, Manual, Request, Rollback, Settled, link
from stream_calib.snapshot.log_reader import LogReader
from stream_calib.snapshot.model import (
    LevelSnapshot,
    ResolvedSnapshot,
    Snapshot,
    decode_snapshot,
    psi_reference,
    resolve,
    sequence_of,
    version_of,
)
from stream_calib.snapshot.report import RefitReport
from stream_calib.windows.state_store import Commit, StateStore

REFIT_LEASE = "refit"
_ATTEMPTS = 20
_REFERENCES_KEPT = 32
_READ = ("decided", "first_pane", "current", "sequence", "open_request", f"token:{REFIT_LEASE}")


@dataclass(frozen=True, slots=True)
class _Moment:
    """The fields as read at one moment, and the log up to there."""

    fields: dict[str, str | None]
    log: DecisionLog

    @property
    def next_pane(self) -> int:
        """decided + 1: where entries that are written now take effect."""
        decided, first = self.fields["decided"], self.fields["first_pane"]
        if decided:
            return int(decided) + 1
        if first:
            return int(first)
        raise StateError("nothing has been read yet for this model key, so there is no pane that a decision could name")


_E = TypeVar("_E", bound=Entry)


@dataclass
class _Change(Generic[_E]):
    entry: _E
    fields: dict[str, str] = field(default_factory=dict)
    appends: dict[str, list[bytes]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    expect: dict[str, str | None] = field(default_factory=dict)


class SnapshotStore:
    """Not thread-safe; several processes may each have one."""

    def __init__(
        self, state: StateStore, key: ModelKey, generation: str, pane_ms: int, clock_ms: Callable[[], int]
    ) -> None:
        """`clock_ms`: wall time, epoch milliseconds, for history and manual entries; it is never part of a snapshot."""
        self._state, self._key, self._generation = state, key, generation
        self._pane_ms, self._clock_ms = pane_ms, clock_ms
        self._reader = LogReader(state)
        self._references: dict[str, PsiReference] = {}

    # --- reading

    def log(self) -> DecisionLog:
        """The decision log as it is now; the object is extended by later calls."""
        return self._moment().log

    def current(self) -> str | None:
        """The version that the pointer names."""
        return self._state.read(["current"])["current"] or None

    def load(self, version: str) -> ResolvedSnapshot:
        """Raises DamagedSnapshotError for bytes that do not match, SnapshotError where a blob is not there."""
        snapshot = self._decode(version)
        structure = self._decode(snapshot.structure) if isinstance(snapshot, LevelSnapshot) else None
        return resolve(version, snapshot, structure)

    def document(self, version: str) -> Snapshot:
        """The version's own document, a level snapshot unresolved. Raises as `load`."""
        return self._decode(version)

    def reference(self, version: str) -> PsiReference:
        """PSI reference of a version; the same object for all versions of one structure that are asked for one after
        the other. Raises as `load`."""
        if version not in self._references:
            resolved = self.load(version)
            known = self._references.get(resolved.structure_version)
            reference = psi_reference(resolved.structure) if known is None else known
            self._references |= {resolved.structure_version: reference, version: reference}
            while len(self._references) > _REFERENCES_KEPT:
                del self._references[next(iter(self._references))]
        return self._references[version]

    def history(self) -> list[dict[str, Any]]:
        """Every move of the pointer, oldest first: {what, version, before, pane, actor, reason, time_ms, ...}."""
        return [json.loads(raw) for raw in self._state.entries("history", 0)]

    def reports(self) -> list[RefitReport]:
        """Every refit's report, oldest first. Raises StateError where one cannot be read."""
        return [RefitReport.decode(raw) for raw in self._state.entries("reports", 0)]

    # --- changing

    def publish(self, candidate: Snapshot, report: RefitReport, token: str) -> str:
        """Makes the candidate current and settles its request as published; returns its version.

        The candidate's `sequence` is replaced by the next number. Raises PublicationRefusedError where `token` is no
        longer the refit lease's, the request has an answer or is unknown, or the pointer is not the candidate's parent.
        """

        def change(now: _Moment) -> _Change[Settled]:
            request = self._must_be_open(now, candidate.request_id, token)
            current = now.fields["current"] or None
            if not current == candidate.parent == request.parent:
                raise PublicationRefusedError(f"request {request.id}: current is {current}, not {candidate.parent}")
            numbered = candidate.model_copy(update={"sequence": int(now.fields["sequence"] or 0) + 1})
            encoded = numbered.encode()
            version = version_of(numbered.sequence, encoded)
            kept = report.model_copy(update={"outcome": "published", "version": version}).encode()
            settled = Settled(
                pane=now.next_pane,
                request_id=request.id,
                outcome="published",
                version=version,
                reason=report.detail,
                report_sha256=sha256_hex(kept),
            )
            moved = self._moved(
                "publish", version, current, settled.pane, "refit", request.reason, request_id=request.id
            )
            return _Change(
                settled,
                fields={"current": version, "sequence": str(numbered.sequence), "open_request": ""},
                appends={"history": [moved], "reports": [kept], "outbox": self._closing_alerts(now)},
                blobs={f"snapshot:{version}": encoded},
                expect={name: now.fields[name] for name in ("current", "sequence", f"token:{REFIT_LEASE}")},
            )

        return self._commit(change).version or ""

    def settle(self, report: RefitReport, token: str) -> None:
        """Answers the report's request without a publication (refused, failed, held, superseded) and keeps the report.

        Raises PublicationRefusedError where `token` is not the refit lease's, or the request has an answer or is
        unknown.
        """
        if report.outcome == "published":
            raise ValueError("a publication is settled by `publish`")

        def change(now: _Moment) -> _Change[Settled]:
            request = self._must_be_open(now, report.request_id, token)
            kept = report.encode()
            settled = Settled(
                pane=now.next_pane,
                request_id=request.id,
                outcome=report.outcome,
                reason=report.detail,
                report_sha256=sha256_hex(kept),
            )
            return _Change(
                settled,
                fields={"open_request": ""},
                appends={"reports": [kept], "outbox": self._opening_alert(now, report, settled.pane)},
                expect={f"token:{REFIT_LEASE}": now.fields[f"token:{REFIT_LEASE}"]},
            )

        self._commit(change)

    def rollback(self, version: str, actor: str, reason: str) -> None:
        """Moves the pointer back to a version that was current before, whatever its age.

        A request that is open then is superseded when its worker comes to publish. Raises SnapshotError where the
        version is not in the history, is current already, or cannot be loaded.
        """
        self.load(version)

        def change(now: _Moment) -> _Change[Rollback]:
            current = now.fields["current"] or None
            if current is None or version == current:
                raise SnapshotError(f"rollback to {version}: it is not behind the current snapshot ({current})")
            if not any(entry["version"] == version for entry in self.history()):
                raise SnapshotError(f"rollback to {version}: it was never published; see `snapshot list`")
            time_ms = self._clock_ms()
            entry = Rollback(
                pane=now.next_pane, version=version, left=current, actor=actor, reason=reason, time_ms=time_ms
            )
            moved = self._moved("rollback", version, current, entry.pane, actor, reason, time_ms=time_ms)
            return _Change(
                entry, fields={"current": version}, appends={"history": [moved]}, expect={"current": current}
            )

        self._commit(change)

    def request_manual(self, actor: str, reason: str) -> int:
        """Asks for a structure refit; returns the pane with which it takes effect."""

        def change(now: _Moment) -> _Change[Manual]:
            return _Change(Manual(pane=now.next_pane, actor=actor, reason=reason, time_ms=self._clock_ms()))

        return self._commit(change).pane

    # --- inside

    def _moment(self) -> _Moment:
        return _Moment(*self._reader.read(_READ))

    def _commit(self, make: Callable[[_Moment], _Change[_E]]) -> _E:
        for _ in range(_ATTEMPTS):
            now = self._moment()
            change = make(now)
            encoded = change.entry.encode()
            expect = change.expect | {name: now.fields[name] for name in ("tip", "decided", "open_request")}
            fields = change.fields | {"tip": link(now.log.tip, encoded), "log_length": str(now.log.length + 1)}
            appends = {name: entries for name, entries in change.appends.items() if entries} | {"decisions": [encoded]}
            if self._state.commit(Commit(expect, fields, appends, change.blobs)):
                return change.entry
        raise StateError(f"decision log of {self._key} moved on {_ATTEMPTS} times in a row; try again")

    def _must_be_open(self, now: _Moment, request_id: str, token: str) -> Request:
        if now.fields[f"token:{REFIT_LEASE}"] != token:
            raise PublicationRefusedError(f"request {request_id}: another worker holds the refit lease; drop the work")
        request = now.log.open_request
        if request is None or request.id != request_id:
            raise PublicationRefusedError(f"request {request_id} is not open: it was answered, expired or lost")
        return request

    def _decode(self, version: str) -> Snapshot:
        (encoded,) = self._state.blobs([f"snapshot:{version}"])
        if encoded is None:
            raise SnapshotError(f"snapshot {version} is not in the state store; see `snapshot list` for those that are")
        return decode_snapshot(version, encoded)

    def _moved(
        self,
        what: str,
        version: str,
        before: str | None,
        pane: int,
        actor: str,
        reason: str,
        *,
        request_id: str | None = None,
        time_ms: int | None = None,
    ) -> bytes:
        return canonical_json(
            {
                "what": what,
                "version": version,
                "sequence": sequence_of(version),
                "before": before,
                "pane": pane,
                "actor": actor,
                "reason": reason,
                "request_id": request_id,
                "time_ms": self._clock_ms() if time_ms is None else time_ms,
            }
        )

    def _opening_alert(self, now: _Moment, report: RefitReport, pane: int) -> list[bytes]:
        kinds: dict[str, AlertKind] = {"refused": "refit_refused", "failed": "refit_failed"}
        kind = kinds.get(report.outcome)
        if kind is None or kind in now.log.open_failures:
            return []
        text = f"the {report.kind} refit ({report.reason}) was {report.outcome}: {report.detail}"
        since_ms = report.pane * self._pane_ms
        evidence = {"request_id": report.request_id}
        alert = make_alert(
            self._key, self._generation, kind, "open", pane=pane, since_ms=since_ms, diagnosis=text, evidence=evidence
        )
        return [alert.encode()]

    def _closing_alerts(self, now: _Moment) -> list[bytes]:
        kinds: tuple[AlertKind, ...] = ("refit_refused", "refit_failed")
        return [
            make_alert(
                self._key,
                self._generation,
                kind,
                "close",
                pane=now.next_pane,
                since_ms=now.log.open_failures[kind] * self._pane_ms,
                diagnosis="a refit was published",
            ).encode()
            for kind in kinds
            if kind in now.log.open_failures
        ]
