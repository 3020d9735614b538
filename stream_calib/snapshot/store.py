"""Publishing, rolling back, pinning and reading snapshots of one model key over its StateStore."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stream_calib import fault_points
from stream_calib.drift.psi import PsiReference
from stream_calib.errors import PublicationRefusedError, SnapshotError, SnapshotPinnedError
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.canonical import sha256_hex
from stream_calib.snapshot.changes import REFIT_LEASE, Change, LogChanges, Moment
from stream_calib.snapshot.decision_log import DecisionLog, Entry, Manual, Pin, Request, Rollback, Settled, Unpin
from stream_calib.snapshot.history import pointer_moves
from stream_calib.snapshot.model import (
    LevelSnapshot,
    ResolvedSnapshot,
    Snapshot,
    decode_snapshot,
    psi_reference,
    resolve,
    version_of,
)
from stream_calib.snapshot.refit_alerts import RefitAlerts
from stream_calib.snapshot.report import RefitReport
from stream_calib.windows.state_store import StateStore

_REFERENCES_KEPT = 32


class SnapshotStore:
    """Not thread-safe; several processes may each have one."""

    def __init__(
        self, state: StateStore, key: ModelKey, generation: str, pane_ms: int, clock_ms: Callable[[], int]
    ) -> None:
        """`clock_ms`: wall time, epoch milliseconds, for history and manual entries; it is never part of a snapshot."""
        self._state, self._key, self._clock_ms = state, key, clock_ms
        self._alerts = RefitAlerts(key, generation, pane_ms)
        self._changes = LogChanges(state, key, clock_ms)
        self._references: dict[str, PsiReference] = {}

    # --- reading

    def log(self) -> DecisionLog:
        """The decision log as it is now; the object is extended by later calls."""
        return self._changes.moment().log

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
        """Every move of the pointer (publish, rollback), and pin and unpin, oldest first: {what, version, before, pane,
        actor, reason, time_ms, ...}. Raises StateError where one cannot be read."""
        return pointer_moves(self._state)

    def reports(self) -> list[RefitReport]:
        """Every refit's report, oldest first. Raises StateError where one cannot be read."""
        return [RefitReport.decode(raw) for raw in self._state.entries("reports", 0)]

    # --- changing

    def publish(self, candidate: Snapshot, report: RefitReport, token: str) -> str:
        """Makes the candidate current and settles its request as published; returns its version.

        The candidate's `sequence` is replaced by the next number. Raises PublicationRefusedError where `token` is no
        longer the refit lease's, the request has an answer or is unknown, or the pointer is not the candidate's parent;
        SnapshotPinnedError where the current snapshot is pinned.
        """

        def change(now: Moment) -> Change[Settled]:
            request = self._must_be_open(now, candidate.request_id, token)
            if (pin := now.log.pin) is not None:
                raise SnapshotPinnedError(
                    f"pinned: {pin.actor} keeps {pin.version} ({pin.reason}); see `snapshot unpin`"
                )
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
            moved = self._changes.moved(
                "publish",
                version,
                current,
                settled.pane,
                "refit",
                request.reason,
                structure=_structure_of(candidate),
                request_id=request.id,
            )
            return Change(
                settled,
                fields={"current": version, "sequence": str(numbered.sequence), "open_request": ""},
                appends={
                    "history": [moved],
                    "reports": [kept],
                    "outbox": self._alerts.closed_by_publication(now.log, now.next_pane),
                },
                blobs={f"snapshot:{version}": encoded},
                expect={name: now.fields[name] for name in ("current", "sequence", f"token:{REFIT_LEASE}")},
            )

        fault_points.before("snapshot.publish")
        settled = self._changes.commit(change)
        fault_points.after("snapshot.publish")
        return settled.version or ""

    def settle(self, report: RefitReport, token: str) -> None:
        """Answers the report's request without a publication (refused, failed, held, superseded) and keeps the report.

        Raises PublicationRefusedError where `token` is not the refit lease's, or the request has an answer or is
        unknown.
        """
        if report.outcome == "published":
            raise ValueError("a publication is settled by `publish`")

        def change(now: Moment) -> Change[Settled]:
            request = self._must_be_open(now, report.request_id, token)
            kept = report.encode()
            settled = Settled(
                pane=now.next_pane,
                request_id=request.id,
                outcome=report.outcome,
                reason=report.detail,
                report_sha256=sha256_hex(kept),
            )
            return Change(
                settled,
                fields={"open_request": ""},
                appends={"reports": [kept], "outbox": self._alerts.opened_by(report, now.log, settled.pane)},
                expect={f"token:{REFIT_LEASE}": now.fields[f"token:{REFIT_LEASE}"]},
            )

        fault_points.before("snapshot.settle")
        self._changes.commit(change)
        fault_points.after("snapshot.settle")

    def rollback(self, version: str, actor: str, reason: str) -> None:
        """Moves the pointer back to a version that was current before, whatever its age.

        A request that is open then is superseded when its worker comes to publish. Raises SnapshotError where the
        version is not in the history, is current already, or cannot be loaded, or where a version is pinned.
        """
        self.load(version)

        def change(now: Moment) -> Change[Rollback]:
            if (pin := now.log.pin) is not None:
                raise SnapshotError(
                    f"rollback to {version}: {pin.actor} pinned {pin.version} ({pin.reason}); `snapshot unpin` first,"
                    " or `snapshot pin` this one in its place"
                )
            entry, moved = self._back_to(version, now, actor, reason)
            return Change(
                entry, fields={"current": version}, appends={"history": [moved]}, expect={"current": entry.left}
            )

        self._changes.commit(change)

    def pin(self, version: str | None, actor: str, reason: str) -> str:
        """Keeps a version that was published: refits are refused at publication until `unpin`. Returns the version.

        None: the current one. Another one is rolled back to in the same step; a pin that is there is replaced. Raises
        SnapshotError where there is no such version or it is pinned already.
        """
        if version is not None:
            self.load(version)

        def change(now: Moment) -> Change[Pin]:
            current = now.fields["current"] or None
            kept = version or current
            if kept is None:
                raise SnapshotError("nothing has been published yet, so there is nothing to pin")
            if now.log.pin is not None and now.log.pin.version == kept:
                raise SnapshotError(f"{kept} is pinned already, by {now.log.pin.actor} ({now.log.pin.reason})")
            before: list[Entry] = []
            history: list[bytes] = []
            if kept != current:
                back, moved = self._back_to(kept, now, actor, reason)
                before.append(back)
                history.append(moved)
            time_ms = self._clock_ms()
            entry = Pin(pane=now.next_pane, version=kept, actor=actor, reason=reason, time_ms=time_ms)
            history.append(self._changes.moved("pin", kept, kept, entry.pane, actor, reason, time_ms=time_ms))
            return Change(
                entry, before, fields={"current": kept}, appends={"history": history}, expect={"current": current}
            )

        return self._changes.commit(change).version

    def unpin(self, actor: str, reason: str) -> str:
        """Lets refits publish again; returns the version that was pinned. Raises SnapshotError where none is."""

        def change(now: Moment) -> Change[Unpin]:
            if (pin := now.log.pin) is None:
                raise SnapshotError(f"no snapshot of {self._key} is pinned")
            time_ms = self._clock_ms()
            entry = Unpin(pane=now.next_pane, version=pin.version, actor=actor, reason=reason, time_ms=time_ms)
            moved = self._changes.moved("unpin", pin.version, pin.version, entry.pane, actor, reason, time_ms=time_ms)
            return Change(entry, appends={"history": [moved]})

        return self._changes.commit(change).version

    def request_manual(self, actor: str, reason: str) -> int:
        """Asks for a structure refit; returns the pane with which it takes effect."""

        def change(now: Moment) -> Change[Manual]:
            return Change(Manual(pane=now.next_pane, actor=actor, reason=reason, time_ms=self._clock_ms()))

        return self._changes.commit(change).pane

    # --- inside

    def _back_to(self, version: str, now: Moment, actor: str, reason: str) -> tuple[Rollback, bytes]:
        """Entry and history move of a rollback. Raises SnapshotError where there is none to be made."""
        current = now.fields["current"] or None
        if current is None or version == current:
            raise SnapshotError(f"rollback to {version}: it is not behind the current snapshot ({current})")
        if not any(entry["version"] == version for entry in self.history()):
            raise SnapshotError(f"rollback to {version}: it is none of those that are kept; see `snapshot list`")
        time_ms = self._clock_ms()
        entry = Rollback(pane=now.next_pane, version=version, left=current, actor=actor, reason=reason, time_ms=time_ms)
        structure = _structure_of(self._decode(version))
        return entry, self._changes.moved(
            "rollback", version, current, entry.pane, actor, reason, structure=structure, time_ms=time_ms
        )

    def _must_be_open(self, now: Moment, request_id: str, token: str) -> Request:
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


def _structure_of(snapshot: Snapshot) -> str | None:
    return snapshot.structure if isinstance(snapshot, LevelSnapshot) else None
