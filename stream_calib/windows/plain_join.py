"""The join of one shard as plainly as it can be said, event by event."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from stream_calib.windows.join_entry import Outcome, Version, best_label, outcome
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.row_codec import decode_rows, encode_rows
from stream_calib.windows.shard_join import ShardJoin
from stream_calib.windows.shard_store import LabelRows, ScoreRows

COUNTED = {
    Outcome.MATCHED: "matched",
    Outcome.LEAKED: "label_leaked",
    Outcome.BEYOND_HORIZON: "label_beyond_horizon",
}


class PlainJoin(ShardJoin):
    """See ShardJoin."""

    def __init__(self, settings: PaneSettings) -> None:
        self._pane_ms, self._horizon_ms = settings.pane_ms, settings.horizon_ms
        self._predictions: dict[int, dict[int, int]] = defaultdict(dict)
        """fingerprint -> pane -> score time of the winner."""
        self._versions: dict[int, list[Version]] = defaultdict(list)
        """fingerprint -> one for each delivery, until no pane can need it."""
        self._rows: dict[int, list[bytes]] = defaultdict(list)
        self._counts: dict[int, Counter[str]] = defaultdict(Counter)
        self._removed = -1

    def add_scores(self, rows: ScoreRows) -> None:
        panes = rows.event_time_ms // self._pane_ms
        for pane in np.unique(panes).tolist():
            mine = rows.take(np.flatnonzero(panes == pane))
            self._rows[pane].append(encode_rows(mine))
            for fingerprint, time in zip(mine.fingerprint.tolist(), mine.event_time_ms.tolist(), strict=True):
                known = self._predictions[fingerprint]
                before = dict(known)
                known[pane] = min(time, known.get(pane, time))
                self._rematch(fingerprint, before)

    def add_labels(self, rows: LabelRows) -> None:
        from_ms = [0] * len(rows) if rows.from_ms is None else rows.from_ms.tolist()
        columns = (rows.fingerprint.tolist(), rows.event_time_ms.tolist(), rows.code.tolist(), from_ms)
        for fingerprint, *facts in zip(*columns, strict=True):
            version = Version(*facts)
            self._note(version, self._predictions.get(fingerprint, {}), 1)
            self._versions[fingerprint].append(version)

    def counts(self) -> Mapping[int, Counter[str]]:
        return self._counts

    def rows(self, pane: int) -> ScoreRows:
        return decode_rows(self._rows.get(pane, []))

    def best(self, fingerprint: NDArray[np.uint64], event_time_ms: NDArray[np.int64]) -> NDArray[np.uint8]:
        pairs = zip(fingerprint.tolist(), event_time_ms.tolist(), strict=True)
        return np.array([best_label(self._versions.get(f, ()), t, self._horizon_ms) for f, t in pairs], dtype=np.uint8)

    def remove(self, pane: int, low_ms: int) -> None:
        for fingerprint in list(self._predictions):
            self._predictions[fingerprint].pop(pane, None)
            if not self._predictions[fingerprint]:
                del self._predictions[fingerprint]
        for fingerprint in list(self._versions):
            if fingerprint not in self._predictions:
                kept = [v for v in self._versions[fingerprint] if v.time_ms > low_ms]
                if kept:
                    self._versions[fingerprint] = kept
                else:
                    del self._versions[fingerprint]
        self._rows.pop(pane, None)
        self._removed = pane
        self._counts.pop(pane, None)

    def _note(self, version: Version, predictions: Mapping[int, int], n: int) -> None:
        kind = COUNTED.get(outcome(version, predictions.values(), self._horizon_ms))
        pane = version.time_ms // self._pane_ms
        if kind is not None and pane > self._removed:
            self._counts[pane][kind] += n

    def _rematch(self, fingerprint: int, before: Mapping[int, int]) -> None:
        for version in self._versions.get(fingerprint, ()):
            self._note(version, before, -1)
            self._note(version, self._predictions[fingerprint], 1)
