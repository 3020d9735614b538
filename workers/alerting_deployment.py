"""Alerts of the deployment that its monitors raise by themselves: labels that do not come, clocks that stand, roles
that are behind, records that are rejected, writes that Redis lost.

Every few seconds one read of the alerts' fields and one of the deployment's own status board; all else the monitor has
at hand. What needs wall time is looked at only where `serving.clock_records` is `wall`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from stream_calib.alerts.conditions import ConditionAlert, Seen
from stream_calib.config import Config
from stream_calib.transport.port import Log, TopicPartition
from stream_calib.windows.state_store import StateStore
from workers.alerting_inputs import StalledInputs
from workers.alerting_processes import LaggingRole, LostWrites, RejectedShares
from workers.input_reports import InputReport
from workers.label_silence import LabelSilence
from workers.status_board import MemberStatus, StatusBoard

_EVERY_MS = 5_000
_ROLES = ("calibrate", "monitor")


class DeploymentConditions:
    """Looked at by every monitor; the first one that sees a change writes it."""

    def __init__(
        self,
        log: Log,
        state: StateStore,
        board: StatusBoard,
        config: Config,
        sides: Mapping[str, str],
        clock_ms: Callable[[], int],
    ) -> None:
        """`state`, `board`: of the deployment. `sides`: topic that the monitor reads -> "s" or "l". `clock_ms`: wall
        time."""
        self._state, self._board = state, board
        self._silence = LabelSilence(log, state, config, clock_ms)
        conditions, is_live = config.alerts.conditions, config.serving.clock_records == "wall"
        stalled_ms = conditions.watermark_stalled_ms if is_live else None
        self._stalled = StalledInputs(config, sides, stalled_ms)
        lag_ms = conditions.lag_ms if is_live else None
        self._lagging = [LaggingRole(role, config, lag_ms) for role in _ROLES]
        self._rejected = RejectedShares([config.topics.scores, *sides], config)
        self._lost = LostWrites(config)
        self._looked_at_ms = 0

    def due(self, now_ms: int) -> bool:
        """Whether it is time to look again; `now_ms` is wall time, which may have been set back."""
        return not 0 <= now_ms - self._looked_at_ms < _EVERY_MS

    def look(
        self,
        now_ms: int,
        statuses: Sequence[MemberStatus],
        reports: Mapping[TopicPartition, InputReport | None],
        left_out: Collection[TopicPartition],
    ) -> None:
        """Opens, updates or closes the alerts. Raises StateUnavailableError.

        `statuses`: of all processes on the boards of the model keys, this one too. `reports`, `left_out`: see
        StalledInputs.
        """
        self._looked_at_ms = now_ms
        self._silence.look()
        known = {(status.role, status.member): status for status in (*self._board.all(now_ms), *statuses)}
        seen = list(self._seen(now_ms, list(known.values()), reports, left_out))
        found = self._state.read([alert.field for alert, _ in seen])
        for alert, condition in seen:
            alert.look(self._state, {alert.field: found[alert.field]}, condition, now_ms)

    def _seen(
        self,
        now_ms: int,
        statuses: Sequence[MemberStatus],
        reports: Mapping[TopicPartition, InputReport | None],
        left_out: Collection[TopicPartition],
    ) -> Iterator[tuple[ConditionAlert, Seen]]:
        for topic, alert in self._stalled.alerts.items():
            if (stalled := self._stalled.seen(topic, reports, left_out, now_ms)) is not None:
                yield alert, stalled
        for role in self._lagging:
            if (lagging := role.seen(statuses, now_ms)) is not None:
                yield role.alert, lagging
        yield self._lost.alert, self._lost.seen(statuses, now_ms)
        self._rejected.note(statuses, now_ms)
        for topic, alert in self._rejected.alerts.items():
            yield alert, self._rejected.seen(topic, now_ms)
