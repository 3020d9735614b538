"""The positions that the monitor's group commits.

They follow those of the shards, for the users' own lag monitoring; no work depends on them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from stream_calib.errors import FencedError, TransportError
from stream_calib.transport.port import Consumer, TopicPartition
from workers.batch_stages import Batch

_LOG = logging.getLogger(__name__)

_EVERY_MS = 1_000


class PositionCommits:
    """Commits where polls go on, once a second, for the partitions that have moved."""

    def __init__(
        self, consumer: Consumer, positions: Mapping[TopicPartition, int], clock_ms: Callable[[], int]
    ) -> None:
        """`positions`: where the next poll begins, of the partitions that are read. `clock_ms`: wall time."""
        self._consumer, self._positions, self._clock_ms = consumer, positions, clock_ms
        self._moved: set[TopicPartition] = set()
        self._committed_at = 0

    def moved(self, partitions: Iterable[TopicPartition]) -> None:
        """Their positions are not those that were committed."""
        self._moved.update(partitions)

    def commit(self, batch: Batch) -> None:
        """Where it is time to, as a stage of the batch. What cannot be committed now is tried again a second later."""
        now = self._clock_ms()
        if not self._moved or now - self._committed_at < _EVERY_MS:
            return
        self._committed_at = now
        due = {p: self._positions[p] for p in self._moved if p in self._positions}
        self._moved.clear()
        try:
            with batch.stage("commit"):
                self._consumer.commit([], due)
            return
        except FencedError as error:
            _LOG.info("positions were not committed: %s", error)
        except TransportError as error:
            _LOG.warning("positions were not committed: %s", error)
        self._moved |= due.keys()
        # A commit that fails sets the consumer back to the committed positions; the shards' are the truth.
        for partition in due.keys() & self._consumer.assignment():
            self._consumer.seek(partition, self._positions[partition])
