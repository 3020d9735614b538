"""Publishing, holding and settling: the answers to refit requests, over one model key's StateStore."""

from __future__ import annotations

from stream_calib import fault_points
from stream_calib.errors import PublicationRefusedError, SnapshotPinnedError
from stream_calib.snapshot.canonical import sha256_hex
from stream_calib.snapshot.changes import REFIT_LEASE, Change, Moment
from stream_calib.snapshot.decision_log import MOST_HELD, Request, Settled
from stream_calib.snapshot.model import Snapshot, version_of
from stream_calib.snapshot.operator_acts import OperatorActs, structure_of
from stream_calib.snapshot.report import RefitReport


class SnapshotStore(OperatorActs):
    """Reading (SnapshotReader), what people do (OperatorActs), and what refit answers. Not thread-safe; several
    processes may each have one."""

    def publish(self, candidate: Snapshot, report: RefitReport, token: str) -> str:
        """Makes the candidate current and settles its request as published; returns its version. Candidates that are
        held are superseded.

        The candidate's `sequence` is replaced by the next number. Raises PublicationRefusedError where `token` is no
        longer the refit lease's, the request has an answer or is unknown, or the pointer is not the candidate's parent;
        SnapshotPinnedError where the current snapshot is pinned.
        """

        def change(now: Moment) -> Change[Settled]:
            request = self._must_fit(now, candidate, token)
            settled, made = self._answered(now, candidate, report.model_copy(update={"outcome": "published"}))
            version = str(settled.version)
            moved = self._changes.moved(
                "publish",
                version,
                candidate.parent,
                settled.pane,
                "refit",
                request.reason,
                structure=structure_of(candidate),
                request_id=request.id,
            )
            made.fields["current"] = version
            made.appends |= {
                "history": [moved],
                "outbox": [
                    *self._alerts.closed_by_publication(now.log, settled.pane),
                    self._alerts.answered(request, "published", settled.pane),
                    *self._alerts.published(version, candidate.parent, candidate.gate, settled.pane, request.reason),
                ],
            }
            made.deletes += [f"snapshot:{held}" for held in now.log.held]
            self._hand.ended(made, now, version)
            return made

        fault_points.before("snapshot.publish")
        settled = self._changes.commit(change)
        fault_points.after("snapshot.publish")
        return str(settled.version)

    def hold(self, candidate: Snapshot, report: RefitReport, token: str) -> str:
        """Keeps the candidate until somebody approves or rejects it, and settles its request as held; returns its
        version, which it keeps when it is published.

        The oldest of more than MOST_HELD held candidates of its kind is superseded. Raises as `publish`.
        """

        def change(now: Moment) -> Change[Settled]:
            request = self._must_fit(now, candidate, token)
            held = report.model_copy(update={"outcome": "held"})
            settled, made = self._answered(now, candidate, held)
            made.appends["outbox"] = [
                *self._alerts.held(held, str(settled.version), now.log, settled.pane),
                self._alerts.answered(request, "held", settled.pane),
            ]
            oldest = now.log.held_beyond(candidate.kind, MOST_HELD - 1)
            made.deletes += [] if oldest is None else [f"snapshot:{oldest}"]
            return made

        fault_points.before("snapshot.settle")
        settled = self._changes.commit(change)
        fault_points.after("snapshot.settle")
        return str(settled.version)

    def settle(self, report: RefitReport, token: str) -> None:
        """Answers the report's request without a candidate (refused, failed, superseded) and keeps the report.

        Raises PublicationRefusedError where `token` is not the refit lease's, or the request has an answer or is
        unknown.
        """
        if report.outcome in ("published", "held"):
            raise ValueError("a publication is settled by `publish`, a candidate that waits by `hold`")

        def change(now: Moment) -> Change[Settled]:
            request = self._must_be_open(now, report.request_id, token)
            kept = self._encoded(report)
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
                appends={
                    "reports": [kept],
                    "outbox": [
                        *self._alerts.opened_by(report, now.log, settled.pane),
                        self._alerts.answered(request, report.outcome, settled.pane),
                    ],
                },
                expect={f"token:{REFIT_LEASE}": now.fields[f"token:{REFIT_LEASE}"]},
            )

        fault_points.before("snapshot.settle")
        self._changes.commit(change)
        fault_points.after("snapshot.settle")

    # --- inside

    def _must_fit(self, now: Moment, candidate: Snapshot, token: str) -> Request:
        """The candidate's request, where the candidate may be published or held now."""
        request = self._must_be_open(now, candidate.request_id, token)
        if (pin := now.log.pin) is not None:
            raise SnapshotPinnedError(f"pinned: {pin.actor} keeps {pin.version} ({pin.reason}); see `snapshot unpin`")
        current = now.fields["current"] or None
        if not current == candidate.parent == request.parent:
            raise PublicationRefusedError(f"request {request.id}: current is {current}, not {candidate.parent}")
        return request

    def _answered(self, now: Moment, candidate: Snapshot, report: RefitReport) -> tuple[Settled, Change[Settled]]:
        """The settlement with the candidate's version; its blob, number and report, all as of this moment."""
        sequence = int(now.fields["sequence"] or 0) + 1
        encoded = self._encoded(candidate.model_copy(update={"sequence": sequence}))
        version = version_of(sequence, encoded)
        kept = self._encoded(report.model_copy(update={"version": version}))
        settled = Settled(
            pane=now.next_pane,
            request_id=report.request_id,
            outcome=report.outcome,
            version=version,
            reason=report.detail,
            report_sha256=sha256_hex(kept),
        )
        return settled, Change(
            settled,
            fields={"sequence": str(sequence), "open_request": ""},
            appends={"reports": [kept]},
            blobs={f"snapshot:{version}": encoded},
            expect={name: now.fields[name] for name in ("current", "sequence", f"token:{REFIT_LEASE}")},
        )

    def _encoded(self, document: Snapshot | RefitReport) -> bytes:
        """Its canonical bytes."""
        return document.encode()

    def _must_be_open(self, now: Moment, request_id: str, token: str) -> Request:
        if now.fields[f"token:{REFIT_LEASE}"] != token:
            raise PublicationRefusedError(f"request {request_id}: another worker holds the refit lease; drop the work")
        request = now.log.open_request
        if request is None or request.id != request_id:
            raise PublicationRefusedError(f"request {request_id} is not open: it was answered, expired or lost")
        return request
