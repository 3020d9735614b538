"""Alert where many labels of a model key come too late to count: they are lost, and only a setting can keep the next.

It speaks of the panes that have not matured, about a horizon: while labels are lost, and not when their panes mature at
last. The counters are those of the shards, exact as of the last call applied.
"""

from __future__ import annotations

import logging

from stream_calib.alerts import standing
from stream_calib.alerts.model import Alert, AlertKind, AlertState, alert_of
from stream_calib.config import Config
from stream_calib.config_values import duration_text
from stream_calib.events.contracts import ModelKey
from stream_calib.windows.shard_store import ShardStore
from stream_calib.windows.state_store import StateStore

_LOG = logging.getLogger(__name__)

FIELD = "late_labels"
MIN_LATE = 100
"""Fewer late labels than this are no alert."""
OPEN_SHARE, CLOSE_SHARE = 0.05, 0.025
"""Of the labels that came; the alert closes well below where it opens, so that it does not flap."""
_KIND: AlertKind = "late_labels"
_EVERY_MS = 30_000


class LateLabels:
    """Looked at by the closer of a model key."""

    def __init__(self, key: ModelKey, generation: str, state: StateStore, shards: ShardStore, config: Config) -> None:
        self._key, self._generation, self._state, self._shards = key, generation, state, shards
        self._pane_ms = config.windows.pane_ms
        self._by_event_time = config.labels.clock == "event"
        self._lateness = duration_text(config.windows.label_lateness_ms)
        self._looked_at_ms = 0

    def look(self, now_ms: int) -> None:
        """Opens or closes the alert where it is time to; `now_ms` is wall time. Raises StateUnavailableError."""
        if now_ms - self._looked_at_ms < _EVERY_MS:
            return
        self._looked_at_ms = now_ms
        found = self._state.read(("matured", FIELD))
        matured = -1 if found["matured"] is None else int(found["matured"])
        counts = self._shards.counts_after(matured)
        late = counts.get("label_late", 0)
        came = late + counts.get("labels", 0)
        if standing.open_since_ms(found[FIELD]) is not None:
            if late < MIN_LATE or late < CLOSE_SHARE * came:
                text = f"{late:,} of {came:,} labels in panes that have not matured are late: few again"
                self._change(found, None, (late, came), text)
        elif late >= MIN_LATE and late >= OPEN_SHARE * came:
            since_ms = max(0, (matured + 1) * self._pane_ms)
            self._change(found, since_ms, (late, came), self._diagnosis(late, came))

    def _diagnosis(self, late: int, came: int) -> str:
        what = (
            f"{late:,} of {came:,} labels in panes that have not matured were late and are not counted: each was more"
            f" than windows.label_lateness ({self._lateness}) behind "
        )
        if self._by_event_time:
            return what + (
                "the newest label of its partition. Where labels are loaded in batches, in any order, set"
                ' labels.clock = "broker", or load them in order with `stream-calib labels load`; else lengthen'
                " windows.label_lateness"
            )
        return what + "the time at which the log took its partition's newest; lengthen windows.label_lateness"

    def _change(
        self, found: dict[str, str | None], since_ms: int | None, counts: tuple[int, int], diagnosis: str
    ) -> None:
        """Opens as of `since_ms`, or closes (None). `counts`: late labels, and all that came."""

        def event(state: AlertState, times: int, since_ms: int) -> Alert:
            return alert_of(
                self._key,
                _KIND,
                state,
                (self._generation, _KIND, state, times),
                pane=since_ms // self._pane_ms,
                since_ms=since_ms,
                diagnosis=diagnosis,
                evidence={"late": counts[0], "came": counts[1]},
            )

        if standing.change(self._state, found, FIELD, since_ms, event):
            _LOG.log(logging.INFO if since_ms is None else logging.WARNING, "%s: %s", self._key, diagnosis)
