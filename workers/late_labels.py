"""Alert where many labels of a model key come too late to count: they are lost, and only a setting can keep the next.

It speaks of the panes that have not matured, about a horizon: while labels are lost, and not when their panes mature at
last. The counters are those of the shards, exact as of the last call applied.
"""

from __future__ import annotations

from stream_calib.alerts.conditions import AT_ONCE, ConditionAlert, Level, Seen
from stream_calib.alerts.standing import StandingAlert
from stream_calib.config import Config
from stream_calib.config_values import duration_text
from stream_calib.events.contracts import ModelKey
from stream_calib.windows.shard_store import ShardStore
from stream_calib.windows.state_store import StateStore

FIELD = "late_labels"
MIN_LATE = 100
"""Fewer late labels than this are no alert."""
OPEN_SHARE, CLOSE_SHARE = 0.05, 0.025
"""Of the labels that came; the alert closes well below where it opens, so that it does not flap."""
_EVERY_MS = 30_000


class LateLabels:
    """Looked at by the closer of a model key."""

    def __init__(self, key: ModelKey, generation: str, state: StateStore, shards: ShardStore, config: Config) -> None:
        self._state, self._shards = state, shards
        self._pane_ms = config.windows.pane_ms
        alert = StandingAlert(key, "late_labels", self._pane_ms, generation=generation)
        self._alert = ConditionAlert(FIELD, alert, AT_ONCE)
        self._by_event_time = config.labels.clock == "event"
        self._lateness = duration_text(config.windows.label_lateness_ms)
        self._looked_at_ms = 0

    def look(self, now_ms: int) -> None:
        """Opens or closes the alert where it is time to; `now_ms` is wall time. Raises StateUnavailableError."""
        if 0 <= now_ms - self._looked_at_ms < _EVERY_MS:
            return
        self._looked_at_ms = now_ms
        found = self._state.read(("matured", FIELD))
        matured = -1 if found["matured"] is None else int(found["matured"])
        counts = self._shards.counts_after(matured)
        late = counts.get("label_late", 0)
        came = late + counts.get("labels", 0)
        seen = Seen(
            _level(late, came),
            since_ms=max(0, (matured + 1) * self._pane_ms),
            diagnosis=self._diagnosis(late, came),
            evidence={"late": late, "came": came},
        )
        self._alert.look(self._state, found, seen, now_ms)

    def _diagnosis(self, late: int, came: int) -> str:
        if _level(late, came) == "fine":
            return f"{late:,} of {came:,} labels in panes that have not matured are late: few again"
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


def _level(late: int, came: int) -> Level:
    if late < MIN_LATE or late < CLOSE_SHARE * came:
        return "fine"
    return "bad" if late >= OPEN_SHARE * came else "between"
