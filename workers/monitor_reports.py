"""Where one monitor stands with its inputs, and what it has heard of the other processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stream_calib.config import WindowsSection
from stream_calib.transport.port import PolledBatch, TopicPartition
from stream_calib.windows.input_partitions import InputPartitions
from workers.alerting_deployment import DeploymentConditions
from workers.input_reports import IdleLabelInputs, InputReport, too_far_ahead
from workers.monitor_models import MonitorModels
from workers.status_board import MemberStatus

_EVERY_MS = 1_000
_BUSY_EVERY_MS = 50
"""While there are unread records, others may wait for what this process says of its clocks."""


class MonitorReports:
    """`positions`: where the next poll of each partition begins, as the monitor keeps it up to date."""

    def __init__(
        self,
        windows: WindowsSection,
        partitions: InputPartitions,
        positions: Mapping[TopicPartition, int],
        clock_ms: Callable[[], int],
    ) -> None:
        """`clock_ms`: wall time."""
        self._windows, self._partitions, self._positions = windows, partitions, positions
        self._clock_ms = clock_ms
        self._idle_labels = IdleLabelInputs.of(windows)
        self._idle_since: dict[TopicPartition, int] = {}
        self._others: dict[str, InputReport] = {}
        self._statuses: list[MemberStatus] = []
        """Of all processes, this one too."""
        self._told_at = 0
        self._told_busy = False

    def forget(self) -> None:
        """What is known of the ends of inputs."""
        self._idle_since.clear()

    def note(self, polled: PolledBatch, models: MonitorModels) -> frozenset[TopicPartition]:
        """Notes which inputs have been read to their end. The partitions that must wait for slower ones."""
        now = self._clock_ms()
        for partition in list(self._idle_since):
            if partition not in self._positions:
                del self._idle_since[partition]
        for partition in self._positions:
            if partition not in polled.at_end:
                self._idle_since.pop(partition, None)
            elif partition in polled.ranges:
                self._idle_since[partition] = now
            else:
                self._idle_since.setdefault(partition, now)
        paused = too_far_ahead(self._all(models), self._windows.max_input_skew_ms)
        return frozenset(p for p in self._positions if self._partitions.keys[p] in paused)

    def idle_inputs(self, models: MonitorModels) -> dict[str, int]:
        """Label inputs that are left out of the minimum now -> their end positions."""
        return {} if self._idle_labels is None else self._idle_labels.left_out(self._all(models), self._clock_ms())

    def exchange(self, role: str, facts: Mapping[str, Any], models: MonitorModels) -> None:
        """From time to time, says where this process is, and hears where the other monitors are: those that are alive,
        because an old report must not leave out what nobody reads now. `facts`: of this process, beside its inputs."""
        now = self._clock_ms()
        busy = any(partition not in self._idle_since for partition in self._positions)
        if now - self._told_at < (_BUSY_EVERY_MS if busy or self._told_busy else _EVERY_MS):
            return
        self._told_at, self._told_busy = now, busy
        facts = {"inputs": self._own(models), **facts}
        others = models.exchange_statuses(role, facts)
        self._statuses = [*others, models.own_status(role, facts)]
        self._others = {
            key: InputReport(*report)
            for status in others
            if status.role == role and now - status.time_ms <= 3 * _EVERY_MS
            for key, report in status.facts["inputs"].items()
        }

    def look_at(self, conditions: DeploymentConditions, models: MonitorModels) -> None:
        """Tells what alerts go by, where it is time to. Raises StateUnavailableError."""
        now = self._clock_ms()
        if conditions.due(now):
            known, idle = self._all(models), self.idle_inputs(models)
            reports = {p: known.get(key) for p, key in self._partitions.keys.items()}
            left_out = [p for p, key in self._partitions.keys.items() if key in idle]
            conditions.look(now, self._statuses, reports, left_out)

    def _all(self, models: MonitorModels) -> dict[str, InputReport]:
        return self._others | self._own(models)

    def _own(self, models: MonitorModels) -> dict[str, InputReport]:
        keys = self._partitions.keys
        return {
            keys[p]: InputReport(position, models.clock_ms(keys[p]), self._idle_since.get(p))
            for p, position in self._positions.items()
        }
