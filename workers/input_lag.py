"""How far behind the end of its inputs a role is, as a metric."""

from __future__ import annotations

from collections.abc import Mapping

from stream_calib import metrics
from stream_calib.transport.port import Log, TopicPartition

_EVERY_MS = 5_000


class InputLag:
    """Exported for the partitions that this process reads; another one's are withdrawn."""

    def __init__(self, role: str, log: Log) -> None:
        self._role, self._log = role, log
        self._exported: set[TopicPartition] = set()
        self._at_ms = 0

    def observe(self, now_ms: int, positions: Mapping[TopicPartition, int]) -> None:
        """Every five seconds, asks the log for the ends. `positions`: next offset of each partition that is read now.

        Raises TransportError where the log is away.
        """
        if now_ms - self._at_ms < _EVERY_MS:
            return
        self._at_ms = now_ms
        for partition, position in positions.items():
            lag = max(0, self._log.end_offset(partition) - position)
            metrics.INPUT_LAG.labels(self._role, partition.topic, str(partition.partition)).set(lag)
        self._withdraw(self._exported - positions.keys())
        self._exported = set(positions)

    def close(self) -> None:
        """Nothing is read any more."""
        self._withdraw(self._exported)
        self._exported = set()

    def _withdraw(self, partitions: set[TopicPartition]) -> None:
        for partition in partitions:
            metrics.INPUT_LAG.remove(self._role, partition.topic, str(partition.partition))
