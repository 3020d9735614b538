"""The metrics of the snapshots that a process serves."""

from __future__ import annotations

from stream_calib import metrics
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.follower import SnapshotFollower
from stream_calib.snapshot.served_models import ServedModels


class ServedMetrics:
    """Exports version, sequence, age of the data and staleness of each model key; a version that is not served any more
    is withdrawn. Not thread-safe."""

    def __init__(self) -> None:
        self._versions: dict[ModelKey, str] = {}

    def observe(self, models: ServedModels) -> None:
        """What is served now."""
        for key, follower in models.followers.items():
            model, held = str(key), follower.held
            staleness_ms = max(models.staleness_ms, follower.staleness_ms)
            metrics.SNAPSHOT_STALENESS_SECONDS.labels(model).set(staleness_ms / 1000)
            metrics.SNAPSHOT_DAMAGED.labels(model).set(follower.damaged is not None)
            metrics.SNAPSHOT_SEQUENCE.labels(model).set(held.sequence if held else 0)
            before, version = self._versions.get(key, ""), version_served(follower)
            if before and before != version:
                metrics.SNAPSHOT_INFO.remove(model, before)
            if held:
                metrics.SNAPSHOT_INFO.labels(model, version).set(1)
                metrics.SNAPSHOT_DATA_TIMESTAMP.labels(model).set(held.data_end_ms / 1000)
            self._versions[key] = version


def version_served(follower: SnapshotFollower) -> str:
    """ "" before the first snapshot."""
    return follower.held.version if follower.held else ""
