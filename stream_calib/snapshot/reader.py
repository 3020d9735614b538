"""Reading the snapshots of one model key from its StateStore."""

from __future__ import annotations

from typing import Any

from stream_calib.drift.psi import PsiReference
from stream_calib.errors import SnapshotError
from stream_calib.snapshot.history import pointer_moves
from stream_calib.snapshot.model import (
    LevelSnapshot,
    ResolvedSnapshot,
    Snapshot,
    decode_snapshot,
    psi_reference,
    resolve,
)
from stream_calib.snapshot.report import RefitReport
from stream_calib.windows.state_store import StateStore

_REFERENCES_KEPT = 32


class SnapshotReader:
    """Not thread-safe; several processes may each have one."""

    def __init__(self, state: StateStore) -> None:
        self._state = state
        self._references: dict[str, PsiReference] = {}

    def current(self) -> str | None:
        """The version that the pointer names."""
        return self._state.read(["current"])["current"] or None

    def load(self, version: str) -> ResolvedSnapshot:
        """Raises DamagedSnapshotError for bytes that do not match, SnapshotError where a blob is not there."""
        snapshot = self.document(version)
        structure = self.document(snapshot.structure) if isinstance(snapshot, LevelSnapshot) else None
        return resolve(version, snapshot, structure)

    def document(self, version: str) -> Snapshot:
        """The version's own document, a level snapshot unresolved. Raises as `load`."""
        (encoded,) = self._state.blobs([f"snapshot:{version}"])
        if encoded is None:
            raise SnapshotError(f"snapshot {version} is not in the state store; see `snapshot list` for those that are")
        return decode_snapshot(version, encoded)

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
        """Every move of the pointer (publish, rollback), and what else people did (pin, unpin, reject, shadow,
        unshadow), oldest first: {what, version, before, pane, actor, reason, time_ms, ...}. Raises StateError where one
        cannot be read."""
        return pointer_moves(self._state)

    def reports(self) -> list[RefitReport]:
        """Every refit's report, oldest first. Raises StateError where one cannot be read."""
        return [RefitReport.decode(raw) for raw in self._state.entries("reports", 0)]
