"""Label inputs that hold up the panes of a rebuild for nothing, as the monitors at work leave them out too.

All that the log has of such an input has been applied, so the panes miss nothing of it; what comes later counts as it
does with the monitors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stream_calib.config import WindowsSection
from stream_calib.transport.port import Log, TopicPartition
from stream_calib.windows.shard_store import Mark
from workers.input_reports import IdleLabelInputs, InputReport


class SilentLabels:
    """`left_out`: input keys to leave out of the minimum now -> their end positions."""

    def __init__(self, log: Log, windows: WindowsSection, clock_ms: Callable[[], int]) -> None:
        """`clock_ms`: wall time, by which the log takes its records too."""
        self._log, self._clock_ms = log, clock_ms
        self._idle, self._timeout_ms = IdleLabelInputs.of(windows), windows.idle_timeout_ms or 0
        self.left_out: dict[str, int] = {}

    def look(self, inputs: Mapping[TopicPartition, tuple[str, Mark]]) -> bool:
        """Whether one of the inputs will be left out within `idle_timeout`, if nothing comes. `inputs`: the label
        partitions, with the key of each and how far it has been applied. Raises TransportError."""
        if self._idle is None:
            return False
        now = self._clock_ms()
        reports = {
            key: InputReport(mark.next, mark.clock_ms, self._silent_since_ms(partition, mark, now))
            for partition, (key, mark) in inputs.items()
        }
        self.left_out = self._idle.left_out(reports, now)
        return self._idle.behind > self.left_out.keys()

    def _silent_since_ms(self, partition: TopicPartition, mark: Mark, now_ms: int) -> int | None:
        """None where the log took a record of it within the timeout, or where some are not applied yet."""
        since_ms = now_ms - self._timeout_ms
        if mark.next < self._log.end_offset(partition) or self._log.offset_at(partition, since_ms) < mark.next:
            return None
        return since_ms
