"""Where a role stands in its inputs: how far behind their ends, for how long, and their clocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stream_calib import metrics
from stream_calib.config import Config
from stream_calib.transport.port import Log, TopicPartition
from stream_calib.windows.panes import ENDED_CLOCK_MS
from workers.input_waits import InputWaits

_EVERY_MS = 5_000


class InputMetrics:
    """Exported for the partitions that this process reads; another one's are withdrawn."""

    def __init__(self, role: str, log: Log, config: Config) -> None:
        self._role, self._log, self._waits = role, log, InputWaits(config)
        self._exported: set[TopicPartition] = set()
        self._at_ms = 0

    def due(self, now_ms: int) -> bool:
        """Whether five seconds have gone by since the last time."""
        return now_ms - self._at_ms >= _EVERY_MS

    def observe(
        self, now_ms: int, positions: Mapping[TopicPartition, int], clocks_ms: Mapping[TopicPartition, int | None]
    ) -> None:
        """Asks the log for the ends.

        `positions`: next offset of each partition that is read now. `clocks_ms`: its largest accepted event time, where
        that is known. Raises TransportError where the log is away.
        """
        self._at_ms = now_ms
        ends = {partition: self._log.end_offset(partition) for partition in positions}
        for partition, position in positions.items():
            topic, number = partition.topic, str(partition.partition)
            lag = max(0, ends[partition] - position)
            metrics.INPUT_LAG.labels(self._role, topic, number).set(lag)
            clock_ms = clocks_ms.get(partition)
            if clock_ms is not None and clock_ms < ENDED_CLOCK_MS:
                metrics.INPUT_CLOCK_TIMESTAMP.labels(topic, number).set(clock_ms / 1000)
        self._withdraw(self._exported - positions.keys())
        self._exported = set(positions)
        self._waits.note(now_ms, positions, ends)

    def facts(self) -> dict[str, Any]:
        """For the process's status: for how long records wait, as of the last look."""
        return self._waits.facts()

    def close(self) -> None:
        """Nothing is read any more."""
        self._withdraw(self._exported)
        self._exported = set()

    def _withdraw(self, partitions: set[TopicPartition]) -> None:
        for topic, partition in partitions:
            metrics.INPUT_LAG.remove(self._role, topic, str(partition))
            metrics.INPUT_CLOCK_TIMESTAMP.remove(topic, str(partition))
