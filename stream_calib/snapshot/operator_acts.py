"""What people do about the snapshots of one model key. Each act is on record with who, why and when."""

from __future__ import annotations

from collections.abc import Callable

from stream_calib.errors import SnapshotError
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.changes import Change, LogChanges, Moment
from stream_calib.snapshot.decision_log import DecisionLog, Entry
from stream_calib.snapshot.fate import why_not_held
from stream_calib.snapshot.hand_alert import HandAlert
from stream_calib.snapshot.history import is_publication
from stream_calib.snapshot.model import LevelSnapshot, Snapshot
from stream_calib.snapshot.operator_entries import Approve, Manual, Pin, Reject, Rollback, Shadow, Unpin, Unshadow
from stream_calib.snapshot.reader import SnapshotReader
from stream_calib.snapshot.refit_alerts import RefitAlerts
from stream_calib.windows.state_store import StateStore


class OperatorActs(SnapshotReader):
    """Each is one compare-and-set on the decision log's tip."""

    def __init__(
        self, state: StateStore, key: ModelKey, generation: str, pane_ms: int, clock_ms: Callable[[], int]
    ) -> None:
        """`clock_ms`: wall time, epoch milliseconds, for the record; it is never part of a snapshot."""
        super().__init__(state)
        self._key, self._clock_ms = key, clock_ms
        self._alerts = RefitAlerts(key, generation, pane_ms)
        self._hand = HandAlert(key, generation, pane_ms)
        self._changes = LogChanges(state, key, clock_ms)

    def log(self) -> DecisionLog:
        """The decision log as it is now; the object is extended by later calls."""
        return self._changes.moment().log

    def request_manual(self, actor: str, reason: str) -> int:
        """Asks for a structure refit; returns the pane with which it takes effect."""

        def change(now: Moment) -> Change[Manual]:
            return Change(Manual(pane=now.next_pane, actor=actor, reason=reason, time_ms=self._clock_ms()))

        return self._changes.commit(change).pane

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
            made = Change(
                entry, fields={"current": version}, appends={"history": [moved]}, expect={"current": entry.left}
            )
            self._hand.note(made, now, version, self._newest())
            return made

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
            made = Change(
                entry, before, fields={"current": kept}, appends={"history": history}, expect={"current": current}
            )
            self._hand.note(made, now, kept, self._newest())
            return made

        return self._changes.commit(change).version

    def unpin(self, actor: str, reason: str) -> str:
        """Lets refits publish again; returns the version that was pinned. Raises SnapshotError where none is."""

        def change(now: Moment) -> Change[Unpin]:
            if (pin := now.log.pin) is None:
                raise SnapshotError(f"no snapshot of {self._key} is pinned")
            time_ms = self._clock_ms()
            entry = Unpin(pane=now.next_pane, version=pin.version, actor=actor, reason=reason, time_ms=time_ms)
            moved = self._changes.moved("unpin", pin.version, pin.version, entry.pane, actor, reason, time_ms=time_ms)
            made = Change(entry, appends={"history": [moved]}, expect={"current": now.fields["current"]})
            self._hand.note(made, now, now.fields["current"] or pin.version, self._newest())
            return made

        return self._changes.commit(change).version

    def approve(self, version: str, actor: str, reason: str) -> None:
        """Publishes a candidate that is held, and supersedes all others that are.

        Raises SnapshotError where it is not held (any more), what it was compared with is not current, or a version is
        pinned; DamagedSnapshotError where its bytes are not its own: it stays held, and nobody is served by it.
        """
        candidate: Snapshot | None = None
        if version in self.log().held:
            self.load(version)
            candidate = self.document(version)

        def change(now: Moment) -> Change[Approve]:
            held = now.log.held.get(version)
            if held is None or candidate is None:
                raise SnapshotError(f"{version} cannot be approved: {why_not_held(now.log, version)}")
            if (pin := now.log.pin) is not None:
                raise SnapshotError(
                    f"{version} cannot be approved: {pin.actor} pinned {pin.version} ({pin.reason}); `snapshot unpin`"
                    " first"
                )
            current = now.fields["current"] or None
            if current != held.parent:
                raise SnapshotError(
                    f"{version} cannot be approved: it is superseded, because it was compared with {held.parent} and"
                    f" {current} is current since a rollback; ask for another one with `stream-calib refit`, or go back"
                    f" to {held.parent} first"
                )
            time_ms = self._clock_ms()
            entry = Approve(
                pane=now.next_pane, version=version, left=current, actor=actor, reason=reason, time_ms=time_ms
            )
            moved = self._changes.moved(
                "publish",
                version,
                current,
                entry.pane,
                actor,
                reason,
                structure=structure_of(candidate),
                request_id=held.request_id,
                time_ms=time_ms,
            )
            made = Change(
                entry,
                fields={"current": version},
                appends={
                    "history": [moved],
                    "outbox": [
                        *self._alerts.closed_by_publication(now.log, entry.pane),
                        *self._alerts.published(
                            version, current, candidate.gate, entry.pane, f"approved by {actor}: {reason}"
                        ),
                    ],
                },
                deletes=[f"snapshot:{other}" for other in now.log.held if other != version],
                expect={"current": current},
            )
            self._hand.ended(made, now, version)
            return made

        self._changes.commit(change)

    def reject(self, version: str, actor: str, reason: str) -> None:
        """Drops a candidate that is held; its report stays. Raises SnapshotError where it is not held (any more)."""

        def change(now: Moment) -> Change[Reject]:
            if version not in now.log.held:
                raise SnapshotError(f"{version} cannot be rejected: {why_not_held(now.log, version)}")
            time_ms = self._clock_ms()
            entry = Reject(pane=now.next_pane, version=version, actor=actor, reason=reason, time_ms=time_ms)
            return Change(
                entry,
                appends={
                    "history": [self._done("reject", version, now, actor, reason, time_ms)],
                    "outbox": self._alerts.closed_by_rejection(now.log, version, entry.pane),
                },
                deletes=[f"snapshot:{version}"],
            )

        self._changes.commit(change)

    def shadow(self, version: str, actor: str, reason: str) -> None:
        """Has a version evaluated beside what is served, in place of the one that is: one that is held, or that was
        published before.

        Raises SnapshotError where it is neither, is current, or is the shadow already; as `load` where it cannot be
        read.
        """
        self.load(version)
        structure = structure_of(self.document(version))

        def change(now: Moment) -> Change[Shadow]:
            if version == (now.fields["current"] or None):
                raise SnapshotError(f"{version} is served, so there is nothing to compare it with")
            if now.log.shadow is not None and now.log.shadow.version == version:
                raise SnapshotError(f"{version} is the shadow already, by {now.log.shadow.actor}")
            if version not in now.log.held and not self._was_published(version):
                raise SnapshotError(f"{version} cannot be the shadow: {why_not_held(now.log, version)}")
            time_ms = self._clock_ms()
            entry = Shadow(
                pane=now.next_pane,
                version=version,
                structure=structure,
                actor=actor,
                reason=reason,
                time_ms=time_ms,
            )
            return Change(
                entry,
                appends={"history": [self._done("shadow", version, now, actor, reason, time_ms)]},
                expect={"current": now.fields["current"]},
            )

        self._changes.commit(change)

    def unshadow(self, actor: str, reason: str) -> str:
        """Ends the evaluation; returns the version that was the shadow. Raises SnapshotError where none is."""

        def change(now: Moment) -> Change[Unshadow]:
            if (shadow := now.log.shadow) is None:
                raise SnapshotError(f"no snapshot of {self._key} is the shadow")
            time_ms = self._clock_ms()
            entry = Unshadow(pane=now.next_pane, version=shadow.version, actor=actor, reason=reason, time_ms=time_ms)
            return Change(
                entry, appends={"history": [self._done("unshadow", shadow.version, now, actor, reason, time_ms)]}
            )

        return self._changes.commit(change).version

    # --- inside

    def _done(self, what: str, version: str, now: Moment, actor: str, reason: str, time_ms: int) -> bytes:
        """A history entry of what moves no pointer."""
        current = now.fields["current"] or None
        return self._changes.moved(what, version, current, now.next_pane, actor, reason, time_ms=time_ms)

    def _newest(self) -> str:
        """What was published last, of what is kept; "" where that is nothing."""
        return next((str(move["version"]) for move in reversed(self.history()) if move["what"] == "publish"), "")

    def _was_published(self, version: str) -> bool:
        return any(is_publication(move) and move["version"] == version for move in self.history())

    def _back_to(self, version: str, now: Moment, actor: str, reason: str) -> tuple[Rollback, bytes]:
        """Entry and history move of a rollback. Raises SnapshotError where there is none to be made."""
        current = now.fields["current"] or None
        if current is None or version == current:
            raise SnapshotError(f"rollback to {version}: it is not behind the current snapshot ({current})")
        if not self._was_published(version):
            raise SnapshotError(f"rollback to {version}: it is none of those that are kept; see `snapshot list`")
        time_ms = self._clock_ms()
        entry = Rollback(pane=now.next_pane, version=version, left=current, actor=actor, reason=reason, time_ms=time_ms)
        structure = structure_of(self.document(version))
        return entry, self._changes.moved(
            "rollback", version, current, entry.pane, actor, reason, structure=structure, time_ms=time_ms
        )


def structure_of(snapshot: Snapshot) -> str | None:
    """The version that it is a level of; None: it is a structure itself."""
    return snapshot.structure if isinstance(snapshot, LevelSnapshot) else None
