"""A store of snapshots over a state in memory, which need not read again what it has written."""

from __future__ import annotations

from collections.abc import Callable

from stream_calib.backtest.policies.bounded import make_room
from stream_calib.backtest.policies.encoded_parts import EncodedParts
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.model import Snapshot, sequence_of
from stream_calib.snapshot.report import RefitReport
from stream_calib.snapshot.store import SnapshotStore
from stream_calib.windows.state_store import StateStore

_SNAPSHOTS_KEPT = 1_000
"""Years of daily ones; most of each are documents that it shares with those of other policies."""


class RememberingStore(SnapshotStore):
    """Keeps the latest documents as objects. A version is a hash of its bytes, so none can change."""

    def __init__(
        self,
        state: StateStore,
        key: ModelKey,
        generation: str,
        pane_ms: int,
        clock_ms: Callable[[], int],
        parts: EncodedParts,
    ) -> None:
        """`parts`: what was encoded already, of other policies too."""
        super().__init__(state, key, generation, pane_ms, clock_ms)
        self._parts = parts
        self._known: dict[str, Snapshot] = {}

    def publish(self, candidate: Snapshot, report: RefitReport, token: str) -> str:
        """As SnapshotStore."""
        version = super().publish(candidate, report, token)
        self._remember(version, candidate.model_copy(update={"sequence": sequence_of(version)}))
        return version

    def document(self, version: str) -> Snapshot:
        """As SnapshotReader."""
        if version not in self._known:
            self._remember(version, super().document(version))
        return self._known[version]

    def _encoded(self, document: Snapshot | RefitReport) -> bytes:
        return self._parts.encode(document)

    def _remember(self, version: str, snapshot: Snapshot) -> None:
        make_room(self._known, _SNAPSHOTS_KEPT)
        self._known[version] = snapshot
