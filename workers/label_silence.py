"""Label outage where nothing matures: no label has come although one was due, so no pane can say what is missing.

Asked of the log itself, by the times at which it took its records, so that a monitor that was restarted, or is far
behind, comes to the same answer. The alert belongs to the deployment, as its topic does; the field `label_silence` of
the deployment's state says whether it is open, and is written with it in one commit.
"""

from __future__ import annotations

from collections.abc import Callable

from stream_calib.alerts.conditions import AT_ONCE, ConditionAlert, Seen
from stream_calib.alerts.standing import StandingAlert
from stream_calib.config import Config
from stream_calib.transport.port import Log, TopicPartition
from stream_calib.windows.model_registry import deployment_scope
from stream_calib.windows.state_store import Commit, StateStore
from workers.time_text import age, utc_minute

FIELD, WATCHED_FIELD = "label_silence", "labels_watched_since"
_EVERY_MS = 10_000
_APART_MS = 60_000
"""By so much the clocks of two monitors may differ without one closing what the other has opened."""


class LabelSilence:
    """Looked at by every monitor; the first one that sees a change writes it.

    Only where `serving.clock_records` is `wall`: history has no wall clock by which anything could be due.
    """

    def __init__(self, log: Log, state: StateStore, config: Config, clock_ms: Callable[[], int]) -> None:
        """`state`: of the deployment. `clock_ms`: wall time."""
        self._log, self._state, self._clock_ms = log, state, clock_ms
        self._topic = config.topics.labels
        scope = deployment_scope(config.log.group_prefix)
        alert = StandingAlert(scope, "label_outage", config.windows.pane_ms, subject=self._topic)
        self._alert = ConditionAlert(FIELD, alert, AT_ONCE)
        self._due, self._is_live = config.labels.when_due(), config.serving.clock_records == "wall"
        self._ahead_ms = min(_APART_MS, config.labels.schedule_grace_ms // 2)
        self._looked_at_ms = 0

    def look(self) -> None:
        """Opens or closes the alert where it is time to. Raises StateUnavailableError, TransportError."""
        now_ms = self._clock_ms()
        if 0 <= now_ms - self._looked_at_ms < _EVERY_MS:
            return
        self._looked_at_ms = now_ms
        found = self._state.read((FIELD, WATCHED_FIELD))
        if not self._is_live:
            text = 'serving.clock_records is not "wall": nobody looks any more whether labels come'
            self._alert.look(self._state, found, Seen("fine", now_ms, text), now_ms)
            return
        watched = found[WATCHED_FIELD]
        if watched is None:
            # What was due before anybody looked is not this deployment's.
            self._state.commit(Commit({WATCHED_FIELD: None}, {WATCHED_FIELD: str(now_ms)}))
            return
        since_ms = self._due.must_have_come_since_ms(now_ms)
        if since_ms >= int(watched):
            self._alert.look(self._state, found, self._seen(since_ms, now_ms), now_ms)

    def _seen(self, since_ms: int, now_ms: int) -> Seen:
        evidence = {"topic": self._topic}
        if self._has_come_since(self._due.must_have_come_since_ms(now_ms + self._ahead_ms)):
            return Seen("fine", since_ms, "labels have come again", evidence)
        if self._has_come_since(since_ms):
            return Seen("between", since_ms, "labels are about to be due", evidence)
        due = self._due.due_ms(now_ms)
        what = f"which was due at {utc_minute(due)}" if self._due.times else f"for {age(now_ms - since_ms)}"
        text = (
            f"no label has come to {self._topic} {what}: no pane matures, and nothing is refitted, until some come;"
            " look at what produces them (labels.schedule and labels.schedule_grace say when they are due)"
        )
        return Seen("bad", since_ms, text, evidence)

    def _has_come_since(self, time_ms: int) -> bool:
        partitions = [TopicPartition(self._topic, p) for p in range(self._log.partitions(self._topic))]
        return any(self._log.offset_at(p, time_ms) < self._log.end_offset(p) for p in partitions)
