"""That inputs are read again, since a shard had lost writes: told in the log, as a metric and in the status."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from stream_calib import metrics
from stream_calib.transport.port import TopicPartition

_LOG = logging.getLogger(__name__)


class Rewinds:
    """Of one process."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        """`clock_ms`: wall time."""
        self._clock_ms = clock_ms
        self._last_ms: dict[str, int] = {}
        """Topic -> when it was read again last."""

    def tell(self, partition: TopicPartition, position: int) -> None:
        """Polls of the partition go on from there."""
        metrics.REWINDS.labels(partition.topic).inc()
        self._last_ms[partition.topic] = self._clock_ms()
        where = {"topic": partition.topic, "partition": partition.partition}
        _LOG.warning("%s is read again from %s: a shard has lost writes", partition, position, extra=where)

    def facts(self) -> dict[str, Any]:
        """For the process's status."""
        return {"rewound": dict(self._last_ms)}
